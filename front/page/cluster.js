// The view of what runs: workers, coordinators, scans, the waterfall of a scan's shards, datasets with coverage by day.

import { call, connection, get, scanPath } from "./api.js";
import { coverage } from "./coverage.js";
import { ago, bytes, count, duration, fill, grouped, h, instant, name, say, shortDataset } from "./dom.js";
import { waterfall } from "./waterfall.js";

/** How often the lists are asked for while the view is open. */
const REFRESH_MS = 2000;
const SCANS_LISTED = 40;
const ACTIVE = new Set(["queued", "running"]);

/** The view. */
export function create() {
  let shown = false;
  let timer = 0;
  /** The scan whose shards are shown, in which state it was seen last, and the dataset whose days are. */
  let chosen = "";
  let chosenState = "";
  let chosenDays = "";
  let showDays = () => {};
  const part = (id, title) => {
    const body = h("div", {});
    return [h("section", { class: "card", "aria-labelledby": id }, h("h2", { id }, title), body), body];
  };
  const [scansCard, scans] = part("scans-title", "Scans");
  const [workersCard, workers] = part("workers-title", "Workers");
  const [coordinatorsCard, coordinators] = part("coordinators-title", "Coordinators");
  const [datasetsCard, datasets] = part("datasets-title", "Datasets");
  const detail = h("section", { class: "card", "aria-labelledby": "waterfall-title", hidden: true, tabindex: -1 });
  const days = h("section", { class: "card", "aria-labelledby": "coverage-title", hidden: true, tabindex: -1 });
  const element = h("div", { class: "cluster-view" }, h("h1", {}, "Cluster"), scansCard, detail, workersCard, coordinatorsCard, datasetsCard, days);

  const table = (label, heads, rows, empty) => rows.length === 0 ? h("p", { class: "hint" }, empty)
    : h("div", { class: "scrolls", tabindex: 0, role: "region", "aria-label": `Table: ${label}` },
      h("table", {}, h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head.startsWith("(") ? h("span", { class: "unseen" }, head.slice(1, -1)) : head)))), h("tbody", {}, rows)));

  /** Replaces a list, unless it is the same: an element that has the focus stays. */
  const states = new Map();
  function put(where, key, make) {
    if (states.get(where) === key) return;
    states.set(where, key);
    const focused = where.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    fill(where, make());
    if (focused) [...where.querySelectorAll("[data-key]")].find((candidate) => candidate.dataset.key === focused)?.focus();
  }

  function scanRow(line) {
    const active = ACTIVE.has(line.state);
    const share = line.segments > 0 ? line.segments_ended / line.segments : 0;
    return h("tr", { class: line.scan === chosen ? "chosen" : "" },
      h("th", { scope: "row" }, h("button", { type: "button", class: "link", "data-key": line.scan, onclick: () => openScan(line.scan) }, h("bdi", { class: "condition" }, line.condition || line.scan))),
      h("td", {}, h("span", { class: `state ${line.state}` }, line.state), line.waits_for ? [" waits for ", h("bdi", {}, line.waits_for)] : ""),
      h("td", {}, active && line.segments > 0 ? h("progress", { max: 1, value: share, "aria-label": `Progress of ${line.scan}` }) : line.failed_symbols ? `${grouped(line.failed_symbols)} failed` : ""),
      h("td", {}, name(shortDataset(line.dataset ?? ""))), h("td", {}, name(line.owner ?? "")), h("td", {}, line.priority), h("td", {}, ago(line.submitted ?? "")),
      h("td", {}, active && h("button", { type: "button", "data-key": `cancel ${line.scan}`, onclick: () => cancel(line.scan) }, "Cancel")));
  }
  async function cancel(scan) {
    try { await call("DELETE", scanPath(scan)); say("Cancelled"); } catch (error) { say(error.message); }
    refresh();
  }
  function workerRow(worker) {
    const loads = worker.loads;
    const reads = loads ? loads.memory + loads.disk + loads.data_root : 0;
    return h("tr", {},
      h("th", { scope: "row" }, name(worker.worker)), h("td", {}, h("span", { class: `state ${worker.state}` }, worker.state)), h("td", {}, h("bdi", {}, worker.class)),
      h("td", {}, h("meter", { min: 0, max: Math.max(1, worker.threads), value: worker.shards_in_flight, "aria-label": `Load of ${worker.worker}` }), ` ${worker.shards_in_flight} shards on ${count(worker.threads, "thread")}`),
      h("td", {}, reads > 0 ? `${Math.round((100 * loads.memory) / reads)} % from memory, ${grouped(loads.disk)} from disk, ${grouped(loads.data_root)} from the data root` : "–"),
      h("td", {}, worker.device ? [h("bdi", {}, worker.device.name), `, ${bytes(worker.device.memory_bytes)}`] : "CPU"),
      h("td", { class: "number" }, worker.cache_bytes ? bytes(worker.cache_bytes) : "–"),
      h("td", {}, loads?.fetch_s > 0 ? `${duration(loads.wait_s * 1000)} waited of ${duration(loads.fetch_s * 1000)}` : "–"), h("td", {}, name(worker.address)));
  }
  const datasetRow = (entry) => h("tr", {},
    h("th", { scope: "row" }, h("button", { type: "button", class: "link", "data-key": entry.name, onclick: () => openDays(entry.name) }, name(entry.name))),
    h("td", {}, entry.timeframe), h("td", { class: "number" }, grouped(entry.symbols)), h("td", { class: "number" }, grouped(entry.bars)),
    h("td", {}, `${instant(entry.first_time)} to ${instant(entry.last_time)}`), h("td", {}, h("code", {}, (entry.snapshot ?? "").slice(0, 8))),
    h("td", {}, [entry.synthetic && "synthetic", entry.bundled && "bundled"].filter(Boolean).join(", "), " ", entry.problem && h("span", { class: "warning" }, h("bdi", {}, entry.problem))));

  async function refresh() {
    clearTimeout(timer);
    if (shown && !document.hidden && connection.state === "open") {
      const paths = [`v1/scans?limit=${SCANS_LISTED}`, "v1/workers", "v1/coordinators", "v1/datasets"];
      const [list, work, lead, sets] = await Promise.all(paths.map((path) => get(path).catch((error) => ({ error }))));
      const place = (where, reply, show) => put(where, JSON.stringify(reply.error?.message ?? reply) + chosen, () => (reply.error ? h("p", { class: "problem" }, reply.error.message) : show(reply)));
      place(scans, list, ({ scans: lines }) => table("Scans", ["scan", "state", "progress", "dataset", "owner", "priority", "submitted", "(actions)"], lines.map(scanRow), "No scan was run yet."));
      place(workers, work, ({ workers: lines }) => table("Workers", ["worker", "state", "class", "load", "bars were", "device", "memory for bars", "fetching", "address"], lines.map(workerRow), "No workers: this server computes by itself."));
      place(coordinators, lead, ({ coordinators: lines }) => table("Coordinators", ["coordinator", "role", "address"], lines.map((line) =>
        h("tr", {}, h("th", { scope: "row" }, name(line.coordinator)), h("td", {}, line.leads ? `leads, epoch ${line.epoch}` : "follows"), h("td", {}, name(line.address)))), "No coordinators: this server computes by itself."));
      place(datasets, sets, (lines) => table("Datasets", ["dataset", "bars", "symbols", "bars stored", "span", "snapshot", "(notes)"], lines.map(datasetRow), "There are no datasets."));
      await followChosen(list.scans);
    }
    clearTimeout(timer);
    if (shown) timer = setTimeout(refresh, REFRESH_MS);
  }

  async function openScan(scan) {
    chosen = scan;
    chosenState = "";
    detail.hidden = false;
    fill(detail, heading("waterfall-title", "Where the time went"), h("p", { class: "hint" }, "Loading"));
    await showReport();
    detail.focus({ preventScroll: true });
    detail.scrollIntoView({ block: "nearest" });
    refresh();
  }
  const heading = (id, ...text) => h("h2", { id }, text);
  /** Shows the report of the chosen scan as it is now. */
  async function showReport() {
    const scan = chosen;
    const title = heading("waterfall-title", "Where the time went");
    try {
      const report = await get(scanPath(scan, "/report"));
      if (chosen === scan) fill(detail, title, waterfall(report));
    } catch (error) {
      if (chosen === scan && error.kind !== "unavailable") fill(detail, title, h("p", { class: "problem" }, error.message), error.help && h("p", { class: "hint" }, error.help));
    }
  }
  /** Follows the chosen scan while it waits or runs, and once more when it has ended. */
  async function followChosen(lines) {
    const state = lines?.find((line) => line.scan === chosen)?.state;
    const was = chosenState;
    if (state) chosenState = state;
    if (state && (ACTIVE.has(state) || ACTIVE.has(was))) await showReport();
  }
  async function openDays(dataset) {
    chosenDays = dataset;
    days.hidden = false;
    const title = heading("coverage-title", "Coverage of ", name(dataset));
    fill(days, title, h("p", { class: "hint" }, "Loading"));
    try {
      const found = await get(`v1/datasets/${encodeURIComponent(dataset)}/coverage`);
      if (chosenDays !== dataset) return;
      showDays = () => fill(days, title, coverage(found.days));
      showDays();
    } catch (error) {
      if (chosenDays !== dataset) return;
      fill(days, title, h("p", { class: "problem" }, error.message), error.help && h("p", { class: "hint" }, error.help));
    }
    days.focus({ preventScroll: true });
    days.scrollIntoView({ block: "nearest" });
  }

  connection.addEventListener("back", refresh);
  addEventListener("trawl-theme", () => showDays());
  document.addEventListener("visibilitychange", () => { if (shown && !document.hidden) refresh(); });

  return {
    element,
    show(payload) {
      shown = true;
      refresh();
      if (typeof payload?.scan === "string") openScan(payload.scan);
    },
    refresh,
    hide() { shown = false; clearTimeout(timer); },
  };
}
