// Names that attack the page, answers without rows, answers of failures alone.

import { invent } from "./invented.mjs";
import { createProxy, serve } from "./stage.mjs";

export async function namesWalk({ trawl, world, check, shots }) {
  const server = await serve(trawl);
  const proxy = await createProxy(server.url, invent);
  try {
    const page = await world.page(proxy.url);
    const harmless = async (where) => {
      const found = await page.evaluate(() => ({ title: document.title, scripts: document.scripts.length, images: document.querySelectorAll("main img").length }));
      check(`names are text in ${where}`, found.title !== "taken" && found.scripts === 1 && found.images === 0, JSON.stringify(found));
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      check(`long names do not widen ${where}`, wide <= 0, `${wide} px`);
    };
    await page.waitForSelector(".past .entry");
    await harmless("the history");
    await page.click(".past .entry[title='invented-names']");
    await page.waitForSelector(".rows .row");
    check("a symbol named <script> is a row", (await page.textContent(".rows")).includes("<script>"));
    await harmless("an answer");
    await page.screenshot({ path: `${shots}/names.png` });
    await page.click(".rows .row[data-at='0']");
    await page.waitForSelector(".symbol-view .problem");
    check("an unknown symbol is reported", /<script>/.test(await page.textContent(".symbol-view h1")), await page.textContent(".symbol-view .problem"));
    await harmless("a symbol");
    await page.click("nav a[data-view='cluster']");
    await page.waitForSelector(".cluster-view table");
    await page.waitForSelector(".cluster-view meter");
    await harmless("the cluster");
    await page.screenshot({ path: `${shots}/names-cluster.png`, fullPage: true });
    await page.click("nav a[data-view='scan']");
    await page.click(".past .entry[title='invented-none']");
    await page.waitForSelector(".answer-table .empty:not([hidden])");
    check("an answer without rows says so", /no rows/.test(await page.textContent(".answer-table .empty")));
    await page.click(".past .entry[title='invented-failed']");
    await page.waitForSelector(".results .problem");
    check("an answer of failures alone says why", /Every symbol failed: .*damaged/.test(await page.textContent(".results .problem")), await page.textContent(".results .problem"));
    await harmless("failures");
    await page.click(".past .entry[title='invented-ended']");
    await page.waitForSelector(".right .problem:has-text('segment 3')");
    check("a scan that failed says why", true);
    await harmless("a failed scan");
  } finally {
    proxy.stop();
    await server.stop();
  }
}
