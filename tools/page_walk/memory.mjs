// A page that is left open while ten scans a second are run. Two tabs: one is left alone on the cluster's view, in the other views are
// changed and answers are opened. Measured: the heap of each after garbage collections, its nodes, and the resident memory of all processes
// of the browser and of the server. What drives a browser makes it keep replies, so that its processes grow whatever the page does:
// a third page is open in a browser that nobody drives, and the memory of that one's renderer counts. It is looked at as it is, and twice after
// garbage collections, for which somebody drives it for a moment: a renderer keeps memory that its page has given back, up to some 90 MB,
// and slowly, so that it grows for more than an hour whatever the page does.

import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";

import { chromium, createProxy, serve } from "./stage.mjs";

const SCANS_PER_SECOND = 10;
/** Growth of a heap from the first third of the samples to the last, in megabytes, that counts as flat. */
const GROWTH_MB_MAX = 3;
/** Growth of the number of nodes from the first third to the last that counts as flat: lists have some rows more or less. */
const GROWTH_NODES_MAX = 300;
/** The steepest line through the samples of the second half that counts as flat, in megabytes an hour. Asked of long walks alone. */
const SLOPE_MB_PER_HOUR_MAX = 2;
/** Minutes from which lines and renderers are judged: over less, collections of the browser weigh more than what is kept. */
const SLOPE_FROM_MINUTES = 20;
/** Growth of the renderer's memory after collections, from the first to the last one, in megabytes, that counts as flat. */
const GROWTH_RENDERER_MB_MAX = 8;
/** The renderer's memory, whatever it keeps, in megabytes. */
const RENDERER_MB_MAX = 128;
/** Minutes after which the renderer is asked to collect garbage the first time. */
const COLLECTED_FROM_MINUTES = 5;
/** How long the renderer may take to give memory back, in milliseconds. */
const GIVEN_BACK_MS = 2000;
const SAMPLE_MS = 10_000;
/** Steps of the figures that are printed. */
const STEP_MINUTES = 5;
const PAGE_BYTES = 4096;

const KEYS = ["undriven_renderer_mb", "left_alone_mb", "used_mb", "left_alone_nodes", "used_nodes", "browser_mb", "server_mb"];

/** Resident megabytes of processes; one that has ended counts nothing. */
function resident(pids) {
  let bytes = 0;
  for (const pid of pids) {
    try {
      bytes += Number(readFileSync(`/proc/${pid}/statm`, "utf8").split(" ")[1]) * PAGE_BYTES;
    } catch { /* ended */ }
  }
  return bytes / 1e6;
}

/** A browser without a driver, with one page. */
function undriven(browser, url) {
  const folder = mkdtempSync(path.join(os.tmpdir(), "trawl-page-"));
  const options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0", `--user-data-dir=${folder}`];
  const child = spawn(browser, [...options, url], { stdio: "ignore", detached: true });
  const parentOf = (pid) => Number(readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").pop().split(" ")[1]);
  /** Megabytes of the renderer that are no files. */
  const rendererMb = () => {
    let kilobytes = 0;
    for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
      try {
        if (!readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("--type=renderer")) continue;
        let above = Number(pid);
        while (above > 1 && above !== child.pid) above = parentOf(above);
        if (above === child.pid) kilobytes += Number(/RssAnon:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]);
      } catch { /* ended */ }
    }
    return kilobytes / 1000;
  };
  /** Asks the page's renderer to collect garbage, and gives its memory after that, with what is in its heaps. */
  const collected = async () => {
    const port = readFileSync(path.join(folder, "DevToolsActivePort"), "utf8").split("\n")[0];
    const driven = await chromium.connectOverCDP(`http://127.0.0.1:${port}`);
    try {
      const client = await driven.contexts()[0].newCDPSession(driven.contexts()[0].pages()[0]);
      // What one collection finds makes garbage of more.
      for (let i = 0; i < 3; i += 1) await client.send("HeapProfiler.collectGarbage");
      const { usedSize, embedderHeapUsedSize } = await client.send("Runtime.getHeapUsage");
      await new Promise((resolve) => setTimeout(resolve, GIVEN_BACK_MS));
      return { renderer_mb: rounded(rendererMb()), heap_mb: rounded(usedSize / 1e6), nodes_mb: rounded((embedderHeapUsedSize ?? 0) / 1e6) };
    } finally {
      await driven.close();
    }
  };
  const stop = () => {
    try { process.kill(-child.pid); } catch { /* ended */ }
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  };
  return { rendererMb, collected, stop };
}

const mean = (list, key) => list.reduce((sum, sample) => sum + sample[key], 0) / list.length;

/** The slope of the line through the samples with the least squares, by hour. */
function slope(samples, key) {
  const [x, y] = [mean(samples, "minute"), mean(samples, key)];
  const spread = samples.reduce((sum, sample) => sum + (sample.minute - x) ** 2, 0);
  return spread === 0 ? 0 : (60 * samples.reduce((sum, sample) => sum + (sample.minute - x) * (sample[key] - y), 0)) / spread;
}

const rounded = (value) => Math.round(value * 100) / 100;

/** Means of every five minutes, and how steep the second half of the samples is. */
function figures(samples, minutes) {
  const step = Math.min(STEP_MINUTES, Number(minutes) / 2);
  const parts = [];
  // The last sample is taken a moment after the end.
  const place = (minute) => Math.min(Math.floor(minute / step), Math.ceil(Number(minutes) / step) - 1);
  for (const sample of samples) (parts[place(sample.minute)] ??= []).push(sample);
  const steps = parts.map((part, index) => ({ from_minute: rounded(index * step), samples: part.length, ...Object.fromEntries(KEYS.map((key) => [key, rounded(mean(part, key))])) }));
  const half = samples.filter(({ minute }) => minute >= Number(minutes) / 2);
  return { steps, per_hour_in_second_half: Object.fromEntries(KEYS.map((key) => [key, rounded(slope(half, key))])) };
}

async function opened(page) {
  const client = await page.context().newCDPSession(page);
  await client.send("HeapProfiler.enable");
  return async () => {
    await client.send("HeapProfiler.collectGarbage");
    const { usedSize } = await client.send("Runtime.getHeapUsage");
    return { mb: usedSize / 1e6, nodes: (await client.send("Memory.getDOMCounters")).nodes };
  };
}

export async function memoryWalk({ trawl, world, check, minutes, write, browser }) {
  const server = await serve(trawl, "--scans-kept-max", "64");
  const proxy = await createProxy(server.url);
  const alone = await world.page(`${proxy.url}#/cluster`);
  const page = await world.page(`${proxy.url}#/cluster`);
  const other = undriven(browser, `${server.url}/#/cluster`);
  const processes = await world.browser.newBrowserCDPSession();
  const begun = Date.now();
  const end = begun + Number(minutes) * 60_000;
  let [submitted, refused, turn] = [0, 0, 0];
  const timer = setInterval(() => {
    turn += 1;
    const body = JSON.stringify({ text: `dataset = "demo"\nwhere = "close > ${turn % 997}"\n` });
    fetch(new URL("v1/scans", server.url), { method: "POST", headers: { "Content-Type": "application/json" }, body })
      .then(async (reply) => { await reply.text(); if (reply.ok) submitted += 1; else refused += 1; }, () => { refused += 1; });
  }, 1000 / SCANS_PER_SECOND);
  const [measureAlone, measureUsed] = [await opened(alone), await opened(page)];
  const samples = [];
  const collections = [];
  let view = 0;
  try {
    // By locators, which keep nothing: what waitForSelector returns would hold its element in the page for ever.
    await page.locator(".cluster-view table").first().waitFor();
    while (Date.now() < end) {
      await page.waitForTimeout(Math.min(SAMPLE_MS, Math.max(0, end - Date.now())));
      // Views are changed too, and an answer is opened each time.
      await page.click(`nav a[data-view='${view % 2 === 0 ? "scan" : "cluster"}']`);
      if (view % 2 === 0) {
        await page.locator(".past .entry:has(.state.done)").first().waitFor();
        await page.locator(".past .entry:has(.state.done)").first().click().catch(() => {});
        await page.waitForTimeout(500);
      }
      view += 1;
      const [one, two] = [await measureAlone(), await measureUsed()];
      const { processInfo } = await processes.send("SystemInfo.getProcessInfo");
      samples.push({
        minute: (Date.now() - begun) / 60_000, left_alone_mb: one.mb, used_mb: two.mb, left_alone_nodes: one.nodes, used_nodes: two.nodes, undriven_renderer_mb: other.rendererMb(),
        browser_mb: resident(processInfo.map(({ id }) => id)), server_mb: resident(server.child ? [server.child.pid] : []),
      });
      const { minute } = samples.at(-1);
      if (collections.length === 0 && minute >= COLLECTED_FROM_MINUTES) collections.push({ minute: rounded(minute), ...await other.collected() });
    }
    collections.push({ minute: rounded((Date.now() - begun) / 60_000), ...await other.collected() });
  } finally {
    clearInterval(timer);
    other.stop();
    proxy.stop();
    await server.stop();
  }
  const found = figures(samples, minutes);
  const third = Math.max(1, Math.floor(samples.length / 3));
  const [first, last] = [samples.slice(0, third), samples.slice(-third)];
  check(`scans were run: ${submitted}, refused ${refused}`, submitted > 0);
  for (const [key, what] of [["left_alone_mb", "left alone"], ["used_mb", "used"]]) {
    const line = found.per_hour_in_second_half[key];
    const nodes = key.replace("mb", "nodes");
    const grown = mean(last, key) - mean(first, key) >= GROWTH_MB_MAX || mean(last, nodes) - mean(first, nodes) >= GROWTH_NODES_MAX;
    const flat = !grown && (Number(minutes) < SLOPE_FROM_MINUTES || line < SLOPE_MB_PER_HOUR_MAX);
    check(`the heap of the page that is ${what} is flat over ${minutes} min`, flat, `${mean(first, key).toFixed(2)} MB, then ${mean(last, key).toFixed(2)} MB, ${line.toFixed(2)} MB an hour in the second half; ${Math.round(mean(first, nodes))} nodes, then ${Math.round(mean(last, nodes))}; ${samples.length} samples`);
  }
  // Over minutes it shows nothing but collections.
  const judged = Number(minutes) >= SLOPE_FROM_MINUTES;
  const [early, late] = [collections[0], collections.at(-1)];
  check("the renderer of a browser that nobody drives is flat after collections", late.renderer_mb > 0 && (!judged || late.renderer_mb - early.renderer_mb < GROWTH_RENDERER_MB_MAX),
    collections.map((one) => `minute ${one.minute}: ${one.renderer_mb} MB, ${one.heap_mb} MB of them in JavaScript's heap, ${one.nodes_mb} MB in that of the nodes`).join("; "));
  check(`it keeps less than ${RENDERER_MB_MAX} MB without being asked`, Math.max(...samples.map((sample) => sample.undriven_renderer_mb)) < RENDERER_MB_MAX,
    `${mean(first, "undriven_renderer_mb").toFixed(1)} MB, then ${mean(last, "undriven_renderer_mb").toFixed(1)} MB`);
  for (const part of found.steps) console.log(`  from minute ${part.from_minute}: ${KEYS.map((key) => `${key} ${part[key]}`).join(", ")}`);
  if (write) {
    const result = {
      benchmark: "page-memory", date: new Date().toISOString(), version: execFileSync(trawl, ["--version"]).toString().trim(), browser: world.browser.version(),
      machine: { architecture: os.arch(), processor: os.cpus()[0]?.model ?? "unknown", cores: os.cpus().length, load: rounded(os.loadavg()[2]) },
      minutes: Number(minutes), scans_per_second: SCANS_PER_SECOND, scans: submitted, refused, collections, ...found,
    };
    writeFileSync(write, `${JSON.stringify(result, null, 1)}\n`);
  }
}
