// A page that is left open while ten scans a second are run: the browser's heap after garbage collections, by minute.

import { createProxy, serve } from "./stage.mjs";

const SCANS_PER_SECOND = 10;
/** Growth of the heap from the first third of the samples to the last, in megabytes, that counts as flat. */
const GROWTH_MB_MAX = 3;
const SAMPLE_MS = 10_000;

export async function memoryWalk({ trawl, world, check, minutes }) {
  const server = await serve(trawl, "--scans-kept-max", "64");
  const proxy = await createProxy(server.url);
  const page = await world.page(`${proxy.url}#/cluster`);
  const end = Date.now() + Number(minutes) * 60_000;
  let [submitted, refused, turn] = [0, 0, 0];
  const timer = setInterval(() => {
    turn += 1;
    const body = JSON.stringify({ text: `dataset = "demo"\nwhere = "close > ${turn % 997}"\n` });
    fetch(new URL("v1/scans", server.url), { method: "POST", headers: { "Content-Type": "application/json" }, body })
      .then(async (reply) => { await reply.text(); if (reply.ok) submitted += 1; else refused += 1; }, () => { refused += 1; });
  }, 1000 / SCANS_PER_SECOND);
  const client = await page.context().newCDPSession(page);
  await client.send("HeapProfiler.enable");
  const samples = [];
  let view = 0;
  try {
    await page.waitForSelector(".cluster-view table");
    while (Date.now() < end) {
      await page.waitForTimeout(Math.min(SAMPLE_MS, Math.max(0, end - Date.now())));
      // Views are changed too, and an answer is opened each time.
      await page.click(`nav a[data-view='${view % 2 === 0 ? "scan" : "cluster"}']`);
      if (view % 2 === 0) {
        await page.waitForSelector(".past .entry:has(.state.done)");
        await page.click(".past .entry:has(.state.done) >> nth=0").catch(() => {});
        await page.waitForTimeout(500);
      }
      view += 1;
      await client.send("HeapProfiler.collectGarbage");
      const { usedSize } = await client.send("Runtime.getHeapUsage");
      const nodes = (await client.send("Memory.getDOMCounters")).nodes;
      samples.push({ mb: usedSize / 1e6, nodes });
    }
  } finally {
    clearInterval(timer);
    proxy.stop();
    await server.stop();
  }
  const third = Math.max(1, Math.floor(samples.length / 3));
  const mean = (list, key) => list.reduce((sum, sample) => sum + sample[key], 0) / list.length;
  const [first, last] = [samples.slice(0, third), samples.slice(-third)];
  const growth = mean(last, "mb") - mean(first, "mb");
  check(`scans were run: ${submitted}, refused ${refused}`, submitted > 0);
  check(`the heap is flat over ${minutes} min`, growth < GROWTH_MB_MAX, `${mean(first, "mb").toFixed(2)} MB, then ${mean(last, "mb").toFixed(2)} MB; ${Math.round(mean(first, "nodes"))} nodes, then ${Math.round(mean(last, "nodes"))}; ${samples.length} samples`);
  const thirds = [samples.slice(0, third), samples.slice(third, -third), last].map((part) => part.map((sample) => sample.mb.toFixed(2)).join(" "));
  console.log(`  MB by sample: ${thirds.join(" | ")}`);
}
