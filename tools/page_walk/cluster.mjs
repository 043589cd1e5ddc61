// A real cluster of three workers, one of them slowed: the view of the cluster names it, and the cause.

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";

import { heavy } from "./runs.mjs";
import { createProxy, freePort, started } from "./stage.mjs";

/** Delay of the slowed worker before each segment; far above the limit at which a shard counts as slow. */
const SLOW_MS = 1200;

/** An etcd: the one of ./test, or one of our own. */
async function etcdOf(folder) {
  if (process.env.TRAWL_TEST_ETCD) return { url: process.env.TRAWL_TEST_ETCD, stop: () => {} };
  const program = process.env.TRAWL_ETCD ?? execFileSync("tools/get-etcd", { encoding: "utf8" }).trim();
  const [client, peer] = [await freePort(), await freePort()];
  const url = `http://127.0.0.1:${client}`;
  const peers = `http://127.0.0.1:${peer}`;
  const child = spawn(program, ["--data-dir", path.join(folder, "etcd"), "--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peers,
    "--initial-advertise-peer-urls", peers, "--initial-cluster", `default=${peers}`], { stdio: "ignore" });
  for (let n = 0; n < 200; n += 1) {
    const there = await fetch(`${url}/health`).then((reply) => reply.ok, () => false);
    if (there) return { url, stop: () => child.kill("SIGKILL") };
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  child.kill("SIGKILL");
  throw new Error("etcd did not start");
}

export async function clusterWalk({ trawl, world, check, shots }) {
  const folder = mkdtempSync(path.join(tmpdir(), "trawl-page-"));
  mkdirSync(path.join(folder, "data"));
  const etcd = await etcdOf(folder);
  const running = [];
  try {
    const shared = ["--etcd", etcd.url, "--cluster-name", `page-${process.pid}-${Date.now()}`, "--data-root", path.join(folder, "data"), "--until-stdin-ends"];
    const coordinator = await started(trawl, ["coordinator", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--id", "c1", ...shared]);
    running.push(coordinator);
    for (const id of ["quick-1", "quick-2", "slowed"]) {
      const slow = id === "slowed" ? ["--fault-delay-ms-per-segment", String(SLOW_MS)] : [];
      running.push(await started(trawl, ["worker", "--listen", "127.0.0.1:0", "--id", id, "--threads", "1", ...slow, ...shared]));
    }
    const proxy = await createProxy(coordinator.http);
    running.push(proxy);
    const page = await world.page(`${proxy.url}#/cluster`);
    await page.waitForFunction(() => document.querySelectorAll(".cluster-view meter").length === 3);
    check("the workers are listed", /slowed/.test(await page.textContent(".cluster-view")));
    check("the leader is listed", /leads/.test(await page.textContent(".cluster-view")));
    const submit = (text) => fetch(`${coordinator.http}/v1/scans`, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ text, shards: "per-group", profile: true }),
    });
    const submitted = await submit('dataset = "demo"\nwhere = "close > sma(close, 20)"\n');
    check("a scan is accepted", submitted.status === 202);
    await page.waitForSelector(".cluster-view .state.done");
    await page.click(".cluster-view button.link");
    await page.waitForSelector(".waterfall li");
    const said = await page.textContent(".stragglers");
    check("the slowed worker is named with the cause", /slowed/.test(said) && /slow-worker/.test(said), said);
    check("its shard is marked in the waterfall", (await page.locator(".waterfall li.late .who").allTextContents()).some((who) => who.includes("slowed")));
    await page.screenshot({ path: `${shots}/straggler.png`, fullPage: true });
    // A scan that runs for some seconds: its waterfall follows it without a click.
    const titled = "[aria-labelledby='waterfall-title']";
    const counted = () => page.waitForFunction((title) => /in \d+ shards?/.test(document.querySelector(title).textContent), titled);
    const shown = () => page.textContent(titled);
    let scan, early, state;
    // On a quick machine the first ones have ended before they are looked at.
    for (const [k, most] of [[64, 300], [65, 1200], [66, 2000], [67, 2000]]) {
      const reply = await (await submit(heavy(k, most))).json();
      scan = reply.scan;
      if (!scan) throw new Error(`a sweep is refused: ${JSON.stringify(reply)}`);
      await page.click(`.cluster-view button.link[data-key='${scan}']`);
      await counted();
      [early, state] = [await shown(), await page.textContent("tr.chosen .state")];
      if (state === "running") break;
    }
    await page.waitForSelector("tr.chosen .state.done", { timeout: 120_000 });
    if (state === "running") await page.waitForFunction(([title, text]) => document.querySelector(title).textContent !== text, [titled, early]);
    const late = await shown();
    await page.click(`.cluster-view button.link[data-key='${scan}']`);
    await counted();
    check("the waterfall of a scan that runs follows it to its end", state === "running" && late === (await shown()), `${state}; ${early.slice(18, 90)}; ${late.slice(18, 90)}`);
    await page.click(".cluster-view [data-key='demo']");
    await page.waitForSelector(".years canvas");
    check("a dataset has its coverage by day", /days? from 2021/.test(await page.textContent("[aria-labelledby='coverage-title']")), await page.getAttribute(".years canvas", "aria-label"));
    await page.screenshot({ path: `${shots}/coverage.png`, fullPage: true });
  } finally {
    for (const process of running.reverse()) await process.stop();
    etcd.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}
