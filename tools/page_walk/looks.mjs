// Pictures to look at, in light, dark and narrow, and what axe finds in each view.

import { readFileSync } from "node:fs";

import { invent } from "./invented.mjs";
import { axePath, createProxy, serve } from "./stage.mjs";

const DOCUMENT = `dataset  = "demo"
universe = "close > 10"
where    = "close > slow and rsi(14) > 55"
rank     = "roc(close, 63) desc"
select   = ["close", "rsi(14) as rsi", "slow", "roc(close, 63) as momentum", "sector"]

[let]
slow = "ema(close, 40)"
`;
const LOOKS = [
  ["light", { colorScheme: "light" }], ["dark", { colorScheme: "dark" }],
  ["narrow", { colorScheme: "light", viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true }],
];
const TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"];

async function axe(page, what, check) {
  // As a script of the debugger: the page's policy lets no other script in.
  await page.evaluate(readFileSync(axePath, "utf8"));
  const found = await page.evaluate((tags) => globalThis.axe.run(document, { runOnly: tags }), TAGS);
  const said = found.violations.map((one) => `${one.impact} ${one.id} (${one.nodes.length}): ${one.nodes[0].target.join(" ")}: ${one.nodes[0].any[0]?.message ?? one.help}`);
  check(`axe finds nothing in ${what}`, found.violations.length === 0, said.join("; "));
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  check(`${what} is as wide as the window`, wide <= 0, `${wide} px wider`);
}

/** Tab reaches every control in turn, and each shows that it has the focus; the switch of colours is remembered. */
async function keys(page, check) {
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.evaluate(() => document.activeElement.blur());
  const reached = [];
  const bare = [];
  for (let n = 0; n < 24; n += 1) {
    await page.keyboard.press("Tab");
    const { name, seen } = await page.evaluate(() => {
      const element = document.activeElement;
      const around = [element, element.closest(".editor")].filter(Boolean).some((one) => getComputedStyle(one).outlineStyle !== "none");
      return { name: `${element.tagName} ${element.id || element.textContent.slice(0, 20)}`, seen: around || element === document.body };
    });
    reached.push(name);
    if (!seen) bare.push(name);
    // In the editor Tab indents: Escape gives it back.
    if (name.startsWith("TEXTAREA")) await page.keyboard.press("Escape");
  }
  check("Tab reaches the controls", new Set(reached).size > 12 && reached.some((name) => name.startsWith("DIV grid")), reached.join(", "));
  check("each shows its focus", bare.length === 0, bare.join(", "));
  const before = await ground();
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("t");
  await page.keyboard.press("t");
  const dark = await ground();
  await page.reload();
  await page.waitForSelector(".cost dl");
  check("the switch of colours is remembered", before !== dark && (await ground()) === dark, `${before}, ${dark}`);
  await page.keyboard.press("t");
  check("and goes back to the system's", (await ground()) === before);
}

export async function looksWalk({ trawl, world, check, shots }) {
  const server = await serve(trawl);
  const proxy = await createProxy(server.url, (method, url, body, real) => (url.startsWith("/v1/workers") ? invent(method, url, body, real) : null));
  try {
    for (const [look, options] of LOOKS) {
      const page = await world.page(proxy.url, options);
      const shot = (name) => page.screenshot({ path: `${shots}/${look}-${name}.png`, fullPage: look === "narrow" });
      await page.waitForSelector(".cost dl");
      await page.fill("textarea", DOCUMENT.replace("slow and", "slwo and"));
      await page.waitForSelector(".mistakes .fix");
      await shot("mistake");
      await axe(page, `${look}, a mistake`, check);
      await page.click(".mistakes .fix");
      await page.waitForSelector(".cost dl");
      await page.click("button.main:has-text('Run')");
      await page.waitForSelector(".results:not([hidden]) .rows .row");
      await page.click(".head [data-key='momentum'] button");
      await page.click(".head [data-key='momentum'] button");
      await page.waitForFunction(() => [...document.querySelectorAll(".rows canvas")].filter((canvas) => canvas.getContext("2d").getImageData(0, 0, 96, 22).data.some((x) => x > 0)).length > 3);
      await page.waitForTimeout(800);
      await shot("scan");
      await axe(page, `${look}, an answer`, check);
      await page.click(".rows .row[data-at='0']");
      await page.waitForSelector(".symbol-view canvas.chart[data-bars]");
      await page.waitForSelector(".tree li");
      await page.waitForTimeout(300);
      await shot("symbol");
      await axe(page, `${look}, a symbol`, check);
      await page.click("nav a[data-view='cluster']");
      await page.waitForSelector(".cluster-view .state.done");
      await page.click(".cluster-view button.link");
      await page.waitForSelector(".waterfall li");
      await page.click(".cluster-view [data-key='demo']");
      await page.waitForSelector(".years canvas");
      await page.waitForTimeout(300);
      await page.screenshot({ path: `${shots}/${look}-cluster.png`, fullPage: true });
      await axe(page, `${look}, the cluster`, check);
      if (look === "light") {
        await page.click("nav a[data-view='scan']");
        await page.waitForSelector(".results .rows .row");
        await keys(page, check);
        await page.click("#keys");
        await page.waitForSelector("dialog[open]");
        await shot("keys");
        await axe(page, "the keys", check);
      }
      await page.context().close();
    }
  } finally {
    proxy.stop();
    await server.stop();
  }
}
