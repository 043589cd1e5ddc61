// A page that is left open while ten scans a second are run. Two tabs: one is left alone on the cluster's view, in the other views are
// changed and answers are opened. Measured: the heap of each after garbage collections, its nodes, and the resident memory of all processes
// of the browser and of the server. What drives a browser makes it keep replies, so that its processes grow whatever the page does:
// a third page is open in a browser that nobody drives, and the memory of that one's renderer counts.

import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";

import { createProxy, serve } from "./stage.mjs";

const SCANS_PER_SECOND = 10;
/** Growth of a heap from the first third of the samples to the last, in megabytes, that counts as flat. */
const GROWTH_MB_MAX = 3;
/** Growth of the number of nodes from the first third to the last that counts as flat: lists have some rows more or less. */
const GROWTH_NODES_MAX = 300;
/** The steepest line through the samples of the second half that counts as flat, in megabytes an hour. Asked of long walks alone. */
const SLOPE_MB_PER_HOUR_MAX = 2;
/** Minutes from which lines and renderers are judged: over less, collections of the browser weigh more than what is kept. */
const SLOPE_FROM_MINUTES = 20;
/** Growth of the renderer's memory from the first third to the last, in megabytes, that counts as flat: nobody asks it to collect garbage. */
const GROWTH_RENDERER_MB_MAX = 8;
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
  const stop = () => {
    try { process.kill(-child.pid); } catch { /* ended */ }
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  };
  return { rendererMb, stop };
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
    }
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
  const renderer = mean(last, "undriven_renderer_mb") - mean(first, "undriven_renderer_mb");
  // Over minutes it shows nothing but collections.
  const judged = Number(minutes) >= SLOPE_FROM_MINUTES;
  check("the renderer of a browser that nobody drives is flat", !judged || (mean(last, "undriven_renderer_mb") > 0 && renderer < GROWTH_RENDERER_MB_MAX),
    `${mean(first, "undriven_renderer_mb").toFixed(1)} MB, then ${mean(last, "undriven_renderer_mb").toFixed(1)} MB`);
  for (const part of found.steps) console.log(`  from minute ${part.from_minute}: ${KEYS.map((key) => `${key} ${part[key]}`).join(", ")}`);
  if (write) {
    const result = {
      benchmark: "page-memory", date: new Date().toISOString(), version: execFileSync(trawl, ["--version"]).toString().trim(), browser: world.browser.version(),
      machine: { architecture: os.arch(), processor: os.cpus()[0]?.model ?? "unknown", cores: os.cpus().length, load: rounded(os.loadavg()[2]) },
      minutes: Number(minutes), scans_per_second: SCANS_PER_SECOND, scans: submitted, refused, ...found,
    };
    writeFileSync(write, `${JSON.stringify(result, null, 1)}\n`);
  }
}
