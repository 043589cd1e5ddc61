// The shards of a run as bars along its time, late ones with their probable cause.
//
// The causes are the server's (`profile` in the report), which `trawl scans trace` prints too: this page works out none.

import { bytes, count, duration, grouped, h, name } from "./dom.js";

/** Shards that are drawn: late ones first, then the slowest. */
const SHARDS_MAX = 200;
/** Workers that are listed. */
const WORKERS_MAX = 60;
const STAGES = ["receive", "queue", "load", "h2d", "kernel", "d2h", "encode", "send"];

/** The waterfall of a report. */
export function waterfall(report) {
  const profile = report.profile ?? null;
  const late = new Map((profile?.shards ?? []).filter((line) => line.straggler).map((line) => [line.attempt, line.straggler]));
  const runs = report.shard_runs ?? [];
  const end = Math.max(1e-6, report.run_ms ?? 0, ...runs.map((run) => run.ended_ms ?? 0));
  const slow = (run) => run.slow_after_ms !== null && run.slow_after_ms !== undefined && took(run, end) > run.slow_after_ms;
  const isLate = (run) => late.has(run.attempt) || (!profile && (slow(run) || (run.ending ?? "").includes(":")));
  const ordered = [...runs].sort((a, b) => Number(isLate(b)) - Number(isLate(a)) || took(b, end) - took(a, end)).slice(0, SHARDS_MAX);
  ordered.sort((a, b) => a.started_ms - b.started_ms || a.attempt - b.attempt);
  const marked = ordered.filter(isLate).sort((a, b) => took(b, end) - took(a, end));
  return [
    h("p", {}, `${report.mode}: ${count(report.symbols ?? 0, "symbol")}, ${count(report.bars ?? 0, "bar")} in ${count(runs.length, "shard")}, ${report.run_ms > 0 ? duration(report.run_ms) : "still running"}; `,
      `prepared in ${duration(report.prepare_ms)}, merged in ${duration(report.merge_ms)}. `,
      report.answer_of ? ["Nothing was computed: it is the answer of ", h("code", {}, report.answer_of), "."] : ""),
    runs.length === 0 ? h("p", { class: "hint" }, "The report has no shards.") : [
      marked.length > 0 ? stragglers(marked, late, end) : h("p", { class: "hint" }, "No stragglers."),
      workersOf(runs, late, end),
      legend(),
      h("ol", { class: "waterfall", "aria-label": "Shards by start" }, ordered.map((run) => bar(run, late.get(run.attempt), isLate(run), end))),
      h("div", { class: "axis", "aria-hidden": "true" }, [0, 0.25, 0.5, 0.75, 1].map((share) => h("span", {}, duration(share * end)))),
      runs.length > ordered.length && h("p", { class: "hint" }, `${grouped(runs.length - ordered.length)} quicker shards are not drawn.`),
    ],
  ];
}

const took = (run, end) => (run.ended_ms ?? end) - run.started_ms;

function stragglers(runs, late, end) {
  return h("div", { class: "stragglers" }, h("h3", {}, "Stragglers, and what probably delayed them"),
    h("ul", {}, runs.map((run) => {
      const found = late.get(run.attempt);
      return h("li", {}, h("b", {}, found?.cause ?? "slow"), ": attempt ", run.attempt, " on ", name(run.worker), `, ${duration(took(run, end))}`, found ? [": ", h("bdi", {}, found.why)] : "");
    })));
}

function workersOf(runs, late, end) {
  const workers = new Map();
  for (const run of runs) {
    const sum = workers.get(run.worker) ?? { shards: 0, late: 0, ms: 0, bars: 0 };
    workers.set(run.worker, { shards: sum.shards + 1, late: sum.late + Number(late.has(run.attempt)), ms: sum.ms + took(run, end), bars: sum.bars + (run.timings?.bars ?? 0) });
  }
  if (workers.size < 2) return null;
  const rows = [...workers].sort((a, b) => b[1].late - a[1].late || b[1].ms - a[1].ms).slice(0, WORKERS_MAX);
  return h("div", { class: "scrolls", tabindex: 0, role: "region", "aria-label": "Workers of this scan" },
    h("table", {}, h("thead", {}, h("tr", {}, ["worker", "shards", "stragglers", "time", "time for a million bars"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, rows.map(([worker, sum]) => h("tr", { class: sum.late > 0 ? "late" : "" }, h("th", { scope: "row" }, name(worker)),
        h("td", { class: "number" }, grouped(sum.shards)), h("td", { class: "number" }, grouped(sum.late)), h("td", { class: "number" }, duration(sum.ms)),
        h("td", { class: "number" }, sum.bars > 0 ? duration((sum.ms / sum.bars) * 1e6) : "–"))))));
}

const legend = () => h("p", { class: "legend" }, STAGES.map((stage) => h("span", {}, h("i", { class: `stage ${stage}`, "aria-hidden": "true" }), stage)));

function bar(run, straggler, isLate, end) {
  const timings = run.timings;
  const whole = took(run, end);
  const line = h("span", { class: `bar ${isLate ? "late" : ""} ${run.purpose === "hedge" ? "hedge" : ""}` });
  line.style.left = `${(100 * run.started_ms) / end}%`;
  line.style.width = `${Math.max(0.3, (100 * whole) / end)}%`;
  for (const stage of timings?.stages ?? []) {
    if (!STAGES.includes(stage.stage) || stage.ended_ms - stage.started_ms < whole / 500) continue;
    const part = h("i", { class: `stage ${stage.stage}` });
    part.style.left = `${(100 * stage.started_ms) / whole}%`;
    part.style.width = `${(100 * (stage.ended_ms - stage.started_ms)) / whole}%`;
    line.append(part);
  }
  const cache = timings ? [timings.from_device && "device", timings.from_memory && "memory", timings.from_disk && "disk"].filter(Boolean).join(", ") : "";
  const facts = [
    `${duration(whole)}`, run.purpose !== "work" && run.purpose, run.ending !== "done" && run.ending, timings && count(timings.bars, "bar"),
    cache && `from ${cache}`, timings?.bytes && bytes(timings.bytes), run.queued_ms >= 1 && `waited ${duration(run.queued_ms)}`,
  ].filter(Boolean).join(", ");
  return h("li", { class: isLate ? "late" : "" },
    h("span", { class: "who" }, h("span", { class: "attempt" }, run.attempt), name(run.worker)), h("span", { class: "track", "aria-hidden": "true" }, line),
    h("span", { class: "facts", title: facts }, isLate && h("b", {}, `⚠ ${straggler?.cause ?? "slow"} `), facts));
}
