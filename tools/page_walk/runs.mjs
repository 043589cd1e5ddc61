// A scan of some seconds is watched, cancelled, followed over a lost connection; tokens and roles.

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";

import { createProxy, serve } from "./stage.mjs";

/** Some seconds of one core; `k` makes it another scan, so that no answer is given again; fewer lengths (`most`) take less. */
export const heavy = (k, most = 1000) => `dataset = "demo-1m"
where = "rsi(n) > k and close > sma(close, n)"
best = { by = "rsi(n)" }
[sweep]
n = { from = 2, to = ${most} }
k = [30, 35, 40, 45, 50, 55, 60, ${k}]
`;

export async function runsWalk({ trawl, world, check, shots }) {
  const server = await serve(trawl, "--backend", "cpu");
  const proxy = await createProxy(server.url);
  try {
    const page = await world.page(proxy.url);
    await page.waitForSelector(".cost dl");
    const begin = async (k) => {
      await page.fill("textarea", heavy(k));
      await page.waitForFunction(() => /combinations/.test(document.querySelector(".cost").textContent));
      await page.click("button.main:has-text('Run')");
      await page.waitForFunction(() => /segments/.test(document.querySelector(".progress:not([hidden])")?.textContent ?? ""));
    };
    await begin(61);
    check("the progress of a scan is shown", true, await page.textContent(".progress"));
    await page.screenshot({ path: `${shots}/running.png` });
    await page.click("button:has-text('Cancel')");
    await page.waitForSelector(".right .problem:has-text('cancelled')");
    const { scans: [last] } = await (await fetch(`${proxy.url}v1/scans?limit=1`)).json();
    check("a scan is cancelled on the server", last.state === "cancelled", last.state);
    await begin(62);
    proxy.lose();
    await page.waitForSelector(".banner.bad");
    await page.waitForTimeout(2500);
    proxy.find();
    await page.waitForSelector(".results:not([hidden]) .rows .row", { timeout: 90_000 });
    check("a scan whose connection was lost is followed to its end", await page.locator("#banner").isHidden());
    await page.context().close();
  } finally {
    proxy.stop();
    await server.stop();
  }
  if (!process.env.TRAWL_PAGE_SERVER) await tokens({ trawl, world, check, shots });
}

async function tokens({ trawl, world, check, shots }) {
  const folder = mkdtempSync(path.join(tmpdir(), "trawl-page-"));
  const file = path.join(folder, "tokens");
  // `trawl tokens new` prints the token on one line, and the line for the file on another.
  const made = (name, roles) => {
    const said = execFileSync(trawl, ["tokens", "new", name, "--roles", roles], { encoding: "utf8" });
    const line = said.split("\n").find((one) => one.startsWith(`${name} `));
    const token = said.split(/\s+/).find((word) => word.length >= 40 && !line.includes(word));
    return { line, token };
  };
  const [alice, reader] = [made("alice", "submit,read"), made("bob", "read")];
  writeFileSync(file, `${alice.line}\n${reader.line}\n`);
  const server = await serve(trawl, "--tokens", file);
  const proxy = await createProxy(server.url);
  try {
    const page = await world.page(proxy.url);
    const enter = async (token) => {
      await page.waitForSelector("dialog[open] #token-input");
      await page.fill("#token-input", token);
      await page.click("dialog button.main");
    };
    await page.waitForSelector("dialog[open] .problem:has-text('asks for a token')");
    check("the page asks for a token", true);
    await enter("wrong");
    await page.waitForSelector("dialog[open] .problem:has-text('does not accept')");
    check("and says that one is not accepted", true);
    await enter(alice.token);
    await page.waitForSelector(".cost dl");
    await page.click("button.main:has-text('Run')");
    await page.waitForSelector(".results:not([hidden]) .rows .row");
    const [download] = await Promise.all([page.waitForEvent("download"), page.click(".exports a:has-text('CSV')")]);
    check("with a token scans run and answers are downloaded", /\.csv$/.test(download.suggestedFilename()));
    const kept = await page.evaluate(() => JSON.stringify({ ...localStorage }) + location.href + document.cookie);
    check("the token is in no address, no cookie, and kept by no other tab", !kept.includes(alice.token));
    await page.click("#token");
    await enter(reader.token);
    await page.waitForFunction(() => !document.querySelector("dialog").open);
    await page.click("button.main:has-text('Run')");
    await page.waitForSelector(".right .problem");
    check("a reader learns which role a scan needs", /submit/.test(await page.textContent(".right .problem")), await page.textContent(".right .problem"));
    await page.screenshot({ path: `${shots}/denied.png` });
  } finally {
    proxy.stop();
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}
