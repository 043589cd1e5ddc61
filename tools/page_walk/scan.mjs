// A scan with a mistake is mended, run, watched, sorted, compared; a symbol is opened; the server is lost and comes back.

import { createProxy, serve } from "./stage.mjs";
import { MINUTES, invent, many } from "./invented.mjs";

const WRONG = `dataset = "demo"
where   = "clse > slow and rsi(14) > 50"
select  = ["close", "rsi(14) as rsi", "sector"]

[let]
slow = "sma(close, 200)"
`;
/** Milliseconds within which 10,000 rows are sorted or filtered, and within which the page is painted first. */
const UPDATE_MS = 100;
const PAINT_MS = 500;

export async function scanWalk({ trawl, world, check, shots }) {
  const server = await serve(trawl);
  const proxy = await createProxy(server.url, invent);
  const page = await world.page(proxy.url);
  try {
    await mend(page, check, shots);
    await table(page, check);
    await symbol(page, check, shots, proxy);
    await compare(page, check);
    await link(page, world, check);
    await lost(page, proxy, check, shots);
    await rows(page, check);
    await longChart(page, check, shots);
    await ownWords(page, check);
    await history(page, world, proxy, check);
    await paint(world, proxy, check);
    await headers(proxy, check);
  } finally {
    proxy.stop();
    await server.stop();
  }
}

async function write(page, text) {
  await page.fill("textarea", text);
}
async function run(page) {
  await page.click("button.main:has-text('Run')");
  await page.waitForSelector(".results:not([hidden]) .rows .row");
  await page.waitForSelector("button.main:has-text('Run'):not([disabled])");
}

async function mend(page, check, shots) {
  await page.waitForSelector(".cost dl");
  check("the cost is shown before the scan runs", /reads/.test(await page.textContent(".cost")), (await page.textContent(".cost dd:nth-of-type(3)")) ?? "");
  await write(page, WRONG);
  await page.waitForSelector(".mistakes .fix");
  const wrong = await page.textContent(".editor .wrong");
  check("the mistake is underlined in its place", wrong === "clse", wrong);
  check("the mistake is reported with its line", (await page.textContent(".mistakes .place")) === "2:12", await page.textContent(".mistakes"));
  await page.screenshot({ path: `${shots}/mistake.png` });
  await page.click(".mistakes .fix");
  await page.waitForSelector(".cost dl");
  check("a click writes the suggestion", (await page.inputValue("textarea")).includes("close > slow") && (await page.locator(".mistakes li").count()) === 0);
  // Completion by keys: `rs` + Enter.
  await page.fill("textarea", 'dataset = "demo"\nwhere = "');
  await page.locator("textarea").press("End");
  await page.locator("textarea").pressSequentially("rs");
  await page.waitForSelector(".completions li");
  const offered = await page.locator(".completions li code").allTextContents();
  check("functions are completed", offered.includes("rsi"), offered.join(" "));
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("Enter");
  check("Enter takes the completion", /where = "[a-z]+\($/.test(await page.inputValue("textarea")), await page.inputValue("textarea"));
  await page.fill("textarea", 'dataset = "demo"\nwhere = "ref(\'S');
  await page.locator("textarea").press("End");
  await page.locator("textarea").pressSequentially("P");
  await page.waitForSelector(".completions li:has-text('SPY')");
  check("symbols are completed", true);
  await page.keyboard.press("Escape");
  await write(page, WRONG.replace("clse", "close"));
  await page.locator("textarea").press("Control+Enter");
  await page.waitForSelector(".results:not([hidden]) .rows .row");
  check("Ctrl+Enter runs the scan", /matched/.test(await page.textContent(".chips")), await page.textContent(".chips"));
}

async function table(page, check) {
  const first = () => page.locator(".rows .row[data-at='0'] .c-symbol").textContent();
  const column = async (key) => {
    const keys = await page.locator(".head .cell").evaluateAll((cells) => cells.map((cell) => cell.dataset.key));
    const shown = await page.locator(".rows .row:not([hidden])").evaluateAll((all, at) => all.sort((a, b) => a.dataset.at - b.dataset.at).map((row) => row.children[at].textContent), keys.indexOf(key));
    return shown.map((text) => (text === "–" ? NaN : Number(text.replaceAll(",", ""))));
  };
  const before = await first();
  await page.click(".head [data-key='rsi'] button");
  const rising = (await column("rsi")).filter((x) => !Number.isNaN(x));
  check("a click sorts a column", rising.length > 5 && rising.every((x, i) => i === 0 || rising[i - 1] <= x), rising.slice(0, 4).join(" "));
  await page.click(".head [data-key='rsi'] button");
  const falling = (await column("rsi")).filter((x) => !Number.isNaN(x));
  check("a second click turns the order", falling.every((x, i) => i === 0 || falling[i - 1] >= x) && falling[0] > rising[0], falling.slice(0, 4).join(" "));
  check("the order is announced", (await page.getAttribute(".head [data-key='rsi']", "aria-sort")) === "descending");
  await page.click(".head [data-key='rsi'] button");
  check("a third click gives the order of the answer back", (await first()) === before);
  await page.fill("#filter", "rsi>60 health");
  await page.waitForFunction(() => /of/.test(document.querySelector("#filtered").textContent));
  const left = (await column("rsi"));
  check("the filter takes words and comparisons", left.length > 0 && left.every((x) => x > 60), await page.textContent("#filtered"));
  await page.fill("#filter", "");
  await page.waitForFunction(() => !/of/.test(document.querySelector("#filtered").textContent));
  await page.click(".chip.unknown");
  const statuses = new Set(await page.locator(".rows .row:not([hidden]) .c-status").allTextContents());
  check("a count shows its status alone", statuses.size === 1 && statuses.has("unknown"), [...statuses].join(" "));
  check("reasons are shown", /too short/.test(await page.textContent(".rows")));
  await page.click(".chip.unknown");
  await page.waitForFunction(() => [...document.querySelectorAll(".rows canvas")].some((canvas) => canvas.getContext("2d").getImageData(0, 0, 96, 22).data.some((x) => x > 0)));
  check("sparklines are drawn", true);
  const formats = await page.locator(".exports a").evaluateAll((links) => links.map((a) => a.getAttribute("href").split("format=")[1]));
  check("every format can be downloaded", formats.join() === "csv,json,ndjson,arrow,parquet", formats.join());
  const [download] = await Promise.all([page.waitForEvent("download"), page.click(".exports a:has-text('CSV')")]);
  check("the download has a name", /\.csv$/.test(download.suggestedFilename()), download.suggestedFilename());
}

async function symbol(page, check, shots, proxy) {
  await page.focus(".grid");
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".symbol-view canvas.chart[data-bars]");
  await page.waitForSelector(".tree li");
  const readout = await page.textContent(".readout");
  check("a symbol has its bars and the scan's series", /open/.test(readout) && /rsi/.test(readout) && /signal/.test(readout), readout);
  check("the reasons are a tree with values", /= \d/.test(await page.textContent(".tree")) && (await page.locator(".tree .truth").count()) >= 3, (await page.textContent(".tree")).slice(0, 120));
  await page.screenshot({ path: `${shots}/symbol.png`, fullPage: true });
  const chart = page.locator("canvas.chart");
  await chart.focus();
  const bars = async () => { await page.waitForTimeout(60); return Number(await chart.getAttribute("data-bars")); };
  const before = await bars();
  await page.keyboard.press("-");
  const wider = await bars();
  await page.keyboard.press("0");
  const all = await bars();
  check("keys zoom the chart", wider > before && all > wider, `${before}, ${wider}, ${all} bars`);
  const time = () => page.locator(".readout dd").first().textContent();
  const last = await time();
  await page.keyboard.press("ArrowLeft");
  check("arrow keys read the bars", (await time()) < last, `${last}, ${await time()}`);
  const old = await page.textContent(".symbol-view h1");
  await page.click("main h1");
  await page.keyboard.press("n");
  await page.waitForFunction((text) => document.querySelector(".symbol-view h1").textContent !== text, old);
  check("n shows the next symbol of the answer", true);
  check("neither token nor document is in a request's address", proxy.requests.every((request) => !/Bearer|token|where|sma|symbol=|text=/i.test(request)));
  await page.keyboard.press("1");
  await page.waitForSelector(".scan-view");
}

/** The series of a scan are computed with its own functions, and not at all where they would be others. */
async function ownWords(page, check) {
  const open = async (text) => {
    await page.click("nav a[data-view='scan']");
    await page.waitForSelector(".scan-view");
    await page.fill("#as-of", "");
    await write(page, text);
    await page.waitForSelector(".cost dl");
    await run(page);
    await page.focus(".grid");
    await page.keyboard.press("Home");
    // The chart of the symbol before is no sign of this one.
    const series = page.waitForResponse((reply) => reply.url().endsWith("/v1/series") && reply.ok());
    await page.keyboard.press("Enter");
    await series;
    await page.waitForFunction(() => document.querySelector(".symbol-view [role='status']")?.textContent.includes("Loading") === false);
    return { readout: await page.textContent(".readout"), note: await page.textContent(".symbol-view [role='status']") };
  };
  const scan = 'where = "close > 0"\nselect = ["twice(close) as doubled"]\n[def]\n"twice(x)" = "x * 2"\n';
  const own = await open(`dataset = "demo"\n${scan}`);
  check("a scan's own functions give its series", /doubled/.test(own.readout) && own.note === "", `${own.readout} ${own.note}`);
  const weekly = await open(`dataset = "demo"\ntimeframe = "1w"\n${scan}`);
  check("series of bars that are built are left out and it is said", !/doubled/.test(weekly.readout) && /Without the scan's series/.test(weekly.note), weekly.note);
}

/** What the history shows belongs together: the document, its answer and their link, whoever sent it and however replies overtake each other. */
async function history(page, world, proxy, check) {
  await page.click("nav a[data-view='scan']");
  await page.waitForSelector(".scan-view");
  const shown = () => page.getAttribute(".facts-line code", "title");
  const entry = async (at) => page.locator(".past .entry").nth(at);
  const digests = [];
  for (const k of [1, 2]) {
    await page.fill("#as-of", "");
    await write(page, `dataset = "demo"\nwhere = "close > ${k}0"\nselect = ["sma(close, n) as mean"]\n\n[let]\nn = "${k + 3}"\n`);
    await page.waitForSelector(".cost dl");
    await run(page);
    digests.push(await shown());
  }
  const { scans } = await (await fetch(new URL("v1/scans?limit=2", proxy.url))).json();
  proxy.faults.held = { part: scans[1].scan, ms: 1500 };
  await (await entry(1)).click();
  await (await entry(0)).click();
  await page.waitForFunction((digest) => document.querySelector(".facts-line code")?.title === digest, digests[1]);
  await page.waitForTimeout(2000);
  proxy.faults.held = null;
  check("a late reply does not replace what was asked for after it", (await shown()) === digests[1] && /close > 20/.test(await page.inputValue("textarea")));
  check("an answer says which condition it is of", (await page.textContent(".results .asked")) === "close > 20", await page.textContent(".results .asked"));
  // Another browser, which has sent none of them.
  const other = await world.page(proxy.url);
  await other.waitForSelector(".past .entry:has-text('close > 10')");
  await other.click(".past .entry:has-text('close > 10') >> nth=0");
  await other.waitForSelector(".results:not([hidden]) .rows .row");
  const written = await other.inputValue("textarea");
  check("the document of a scan that others sent is in the editor", /where = "close > 10"/.test(written) && /n = "4"/.test(written), JSON.stringify(written));
  await other.waitForSelector(".cost dl");
  await other.click("button.main:has-text('Run')");
  await other.waitForSelector("button.main:has-text('Run'):not([disabled])");
  await other.waitForSelector(".results:not([hidden]) .rows .row");
  check("and gives the same answer", (await other.getAttribute(".facts-line code", "title")) === digests[0]);
  check("and has a link", /#\/scan\//.test(await other.getAttribute(".exports button[data-link]", "data-link")));
  await other.context().close();
}

async function compare(page, check) {
  await page.fill("#as-of", "2024-11-29");
  await page.waitForSelector(".cost dl");
  await run(page);
  await page.waitForSelector(".past li:nth-child(2) input:not([disabled])");
  await page.locator(".past input").nth(0).check();
  await page.locator(".past input").nth(1).check();
  await page.click("button:has-text('Compare two answers')");
  await page.waitForSelector(".comparison tbody tr");
  const said = await page.textContent(".comparison .counts");
  const [entered, left, changed] = [...said.matchAll(/\d+/g)].map(Number);
  const matched = Number((await page.textContent(".chip.matched b")).replace(",", ""));
  check("two answers are compared", entered + left + changed > 0 && matched > 0, said);
  await page.click(".comparison button:has-text('Close')");
}

async function link(page, world, check) {
  const address = await page.getAttribute(".exports button[data-link]", "data-link");
  const digest = await page.getAttribute(".facts-line code", "title");
  const other = await world.page(address);
  await other.waitForSelector(".cost dl");
  check("a link has the document with its snapshot", /demo@[0-9a-f]{64}/.test(await other.inputValue("textarea")) && (await other.inputValue("#as-of")) !== "");
  await other.click("button.main:has-text('Run')");
  await other.waitForSelector(".results:not([hidden]) .rows .row");
  check("and reproduces the answer to the bit", (await other.getAttribute(".facts-line code", "title")) === digest, digest);
  await other.context().close();
}

async function lost(page, proxy, check, shots) {
  proxy.lose();
  await page.keyboard.press("Escape");
  await page.click("h1");
  await page.click(".past .entry >> nth=0");
  await page.waitForSelector(".banner.bad");
  check("a lost server is reported", /cannot be reached/.test(await page.textContent("#banner")), await page.textContent("#banner"));
  await page.screenshot({ path: `${shots}/lost.png` });
  check("what was shown stays", (await page.locator(".editor pre").textContent()).includes("slow"));
  await page.waitForTimeout(1500);
  proxy.find();
  await page.waitForSelector("#banner", { state: "hidden" });
  check("it comes back by itself", true);
  await page.click(".past .entry >> nth=0");
  await page.waitForSelector(".results:not([hidden]) .rows .row");
  check("and works on", true);
  proxy.faults.delayMs = 3600;
  await page.click(".past .entry >> nth=0");
  await page.waitForSelector("#banner:has-text('slow')");
  check("a slow server is reported", true);
  proxy.faults.delayMs = 0;
  await page.waitForSelector("#banner", { state: "hidden" });
}

/** 10,000 rows: each change is timed in the browser, from the event to the frame after it. */
async function rows(page, check) {
  await page.click(".past .entry:has-text('ten thousand rows')");
  await page.waitForFunction(() => document.querySelector(".grid").getAttribute("aria-rowcount") === "10001");
  const elements = await page.locator(".rows .row").count();
  check("of 10,000 rows those in view are elements", elements < 120, `${elements}`);
  const timed = await page.evaluate(async () => {
    const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    const spent = async (work) => { await frame(); const begun = performance.now(); work(); await frame(); return performance.now() - begun; };
    const header = (key) => document.querySelector(`.head [data-key='${key}'] button`);
    const filter = document.querySelector("#filter");
    const updated = () => Number(document.querySelector(".grid").dataset.updateMs);
    const all = {};
    for (const key of ["close", "symbol", "sector", "momentum"]) {
      all[`sort by ${key}`] = [await spent(() => header(key).click()), updated()];
      all[`${key} descending`] = [await spent(() => header(key).click()), updated()];
    }
    for (const text of ["s00", "energy momentum>10", "rsi<20"]) {
      filter.value = text;
      filter.dispatchEvent(new Event("input"));
      await new Promise((resolve) => setTimeout(resolve, 200));
      all[`filter ${text}`] = [updated(), updated()];
    }
    filter.value = "";
    filter.dispatchEvent(new Event("input"));
    await new Promise((resolve) => setTimeout(resolve, 200));
    all.scroll = [await spent(() => { document.querySelector(".grid").scrollTop = 150_000; }), 0];
    return all;
  });
  // The order is right to the last row: numbers first in both directions, NA last.
  const numbers = many(10_000).rows.map((row) => row.close).filter((x) => x !== null).sort((a, b) => a - b);
  for (const [clicks, way] of [[1, 1], [1, -1]]) {
    for (let n = 0; n < clicks; n += 1) await page.click(".head [data-key='close'] button");
    const read = async (top) => {
      await page.evaluate((y) => { document.querySelector(".grid").scrollTop = y; }, top);
      await page.waitForTimeout(100);
      return page.evaluate(() => {
        const at = [...document.querySelectorAll(".head .cell")].findIndex((cell) => cell.dataset.key === "close");
        return [...document.querySelectorAll(".rows .row:not([hidden])")].sort((a, b) => a.dataset.at - b.dataset.at).map((row) => [Number(row.dataset.at), row.children[at].textContent.replaceAll(",", "")]);
      });
    };
    const wanted = way > 0 ? numbers : [...numbers].reverse();
    const places = [...await read(0), ...await read(60_000), ...await read((numbers.length - 5) * 30), ...await read(300_000)];
    const wrong = places.filter(([at, text]) => text !== (at < wanted.length ? String(wanted[at]) : "–"));
    check(`10,000 rows are in order, ${way > 0 ? "ascending" : "descending"}, NA last`, places.length > 60 && wrong.length === 0, `${places.length} places, ${wrong.length} wrong`);
  }
  for (const [what, [whole, own]] of Object.entries(timed)) {
    check(`10,000 rows: ${what} within ${UPDATE_MS} ms`, Math.max(own, 0) < UPDATE_MS && whole < UPDATE_MS * 2, `${own.toFixed(1)} ms, ${whole.toFixed(1)} ms with the frame`);
  }
}

/** 100,000 bars: every step of zooming and moving is timed. */
async function longChart(page, check, shots) {
  await page.keyboard.press("Escape");
  await page.click("nav a[data-view='symbol']");
  await page.fill("#symbol-dataset", "demo");
  await page.fill("#symbol-symbol", MINUTES);
  await page.fill("#symbol-exprs", "sma(close, 20) as mean");
  await page.click(".symbol-form button");
  await page.waitForFunction((name) => document.querySelector(".symbol-view h1").textContent.includes(name) && document.querySelector("canvas.chart").dataset.bars, MINUTES);
  const chart = page.locator("canvas.chart");
  await page.waitForFunction(() => /100,000 bars/.test(document.querySelector("canvas.chart").getAttribute("aria-label")));
  await chart.focus();
  const spent = [];
  for (const key of ["0", "+", "+", "Shift+ArrowLeft", "PageUp", "-", "0"]) {
    await page.keyboard.press(key);
    await page.waitForTimeout(120);
    spent.push([key, Number(await chart.getAttribute("data-bars")), Number(await chart.getAttribute("data-draw-ms"))]);
  }
  check("100,000 bars are in one picture", spent[0][1] === 100_000 && spent[1][1] < 100_000, spent.map(([key, bars]) => `${key} ${bars}`).join(", "));
  check("each step of zooming and moving is drawn within 100 ms", spent.every(([, , ms]) => ms < UPDATE_MS), spent.map(([, , ms]) => `${ms} ms`).join(", "));
  await page.screenshot({ path: `${shots}/bars.png` });
}

async function paint(world, proxy, check) {
  const times = [];
  for (let n = 0; n < 3; n += 1) {
    const page = await world.page(proxy.url);
    times.push(await page.evaluate(() => new Promise((resolve) => {
      new PerformanceObserver((list) => resolve(list.getEntries().find((entry) => entry.name === "first-contentful-paint").startTime)).observe({ type: "paint", buffered: true });
    })));
    await page.context().close();
  }
  times.sort((a, b) => a - b);
  check(`the first paint is within ${PAINT_MS} ms`, times[0] < PAINT_MS, times.map((ms) => `${ms.toFixed(0)} ms`).join(", "));
}

async function headers(proxy, check) {
  const reply = await fetch(proxy.url);
  const policy = reply.headers.get("content-security-policy") ?? "";
  check("the policy forbids everything inline and from elsewhere", /default-src 'none'/.test(policy) && !/unsafe/.test(policy) && /frame-ancestors 'none'/.test(policy), policy);
  if (process.env.TRAWL_PAGE_FILES) return;
  const again = await fetch(proxy.url, { headers: { "If-None-Match": reply.headers.get("etag") } });
  check("a file that the browser has is not sent again", again.status === 304);
}
