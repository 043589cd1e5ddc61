// The view of scans: editor, cost, run, answer, history.

import { Problem, answer, call, connection, follow, get, post, reachable, scanPath } from "./api.js";
import { comparison } from "./compare.js";
import { documentText } from "./document.js";
import { bytes, count, debounced, duration, fill, grouped, h, name, say, shortDataset } from "./dom.js";
import { createEditor } from "./editor.js";
import { datasetOf } from "./language.js";
import { address } from "./link.js";
import { createPast, documentOf, keep } from "./past.js";
import { createResults } from "./results.js";
import { shared } from "./shared.js";
import * as words from "./words.js";

const EXAMPLE = `dataset = "demo"
where   = "close > slow and rsi(14) > 60"
rank    = "roc(close, 63) desc"
select  = ["close", "rsi(14) as rsi", "slow"]

[let]
slow = "ema(close, 40)"
`;
const DRAFT_KEY = "trawl.draft";
/** How often a submission is sent again while the server is busy or away. */
const SUBMISSIONS_MAX = 30;
/** Pause after typing before the server is asked what the scan costs. */
const EXPLAIN_MS = 350;

function keepDraft(text) {
  try { sessionStorage.setItem(DRAFT_KEY, text); } catch { /* too long for the browser: it is only in the editor */ }
}

/** The view. */
export function create() {
  let explained = null;
  let explaining = null;
  let running = null;
  /** Counts what was asked to be shown: a reply to an earlier wish is dropped. */
  let wish = 0;

  const editor = createEditor({ complete: words.complete, changed: edited, run });
  const asOf = h("input", { id: "as-of", type: "text", placeholder: "newest bar", autocomplete: "off", spellcheck: "false", size: 20, oninput: () => edited(editor.text) });
  const runButton = h("button", { type: "button", class: "main", onclick: run, "aria-keyshortcuts": "Control+Enter" }, "Run");
  const cancelButton = h("button", { type: "button", onclick: cancel, hidden: true }, "Cancel");
  const cost = h("div", { class: "cost" });
  const progress = h("div", { class: "progress", hidden: true });
  const problem = h("div", { role: "alert" });
  const results = createResults({ openSymbol });
  const compared = h("div", {});
  const past = createPast({ open: openPast, compare });
  const element = h("div", { class: "scan-view" },
    h("div", { class: "left" },
      h("section", { class: "card", "aria-labelledby": "editor-title" },
        h("div", { class: "card-head" }, h("h1", { id: "editor-title" }, "Scan"),
          h("span", { class: "as-of" }, h("label", { for: "as-of" }, "as of "), asOf)),
        editor.element,
        h("div", { class: "run-line" }, runButton, cancelButton, h("span", { class: "hint wide" }, "Ctrl+Enter")),
        cost),
      past.element),
    h("div", { class: "right" }, progress, problem, compared, results.element,
      h("p", { class: "empty-state", id: "nothing" }, "Run the scan to see which symbols match.")));

  const asked = () => ({ text: editor.text, ...(asOf.value.trim() ? { as_of: asOf.value.trim() } : {}) });

  // Cost and mistakes while typing

  const explainSoon = debounced(EXPLAIN_MS, explain);
  function edited(text) {
    keepDraft(text);
    explainSoon();
  }
  async function explain() {
    explaining?.abort(new DOMException("typed on", "AbortError"));
    explaining = new AbortController();
    const { signal } = explaining;
    if (!editor.text.trim()) { fill(cost); editor.showMistakes([]); return; }
    words.loadDataset(datasetOf(editor.text));
    try {
      explained = await post("v1/explain", asked(), { signal });
      editor.showMistakes([]);
      showCost(explained);
    } catch (error) {
      if (signal.aborted) return;
      explained = null;
      fill(cost);
      showMistake(error);
    }
  }
  function showMistake(error) {
    if (!(error instanceof Problem)) throw error;
    if (["unavailable", "too_many"].includes(error.kind)) fill(cost, h("p", { class: "hint" }, `The cost is not known: ${error.message}.`));
    else editor.showMistakes(error.mistakes, error.mistakes.length > 0 ? "" : [error.message, error.help].filter(Boolean).join("; "));
  }
  function showCost(found) {
    const [least, most] = found.bars_needed;
    const needed = least === most ? grouped(least) : `${grouped(least)} to ${grouped(most)}`;
    const some = found.too_short_for_some ?? [];
    const named = (symbols) => [": ", h("bdi", {}, symbols.slice(0, 5).map((entry) => entry.symbol).join(", ")), symbols.length > 5 ? ", ..." : ""];
    const short = found.too_short ?? [];
    const facts = [
      ["dataset", name(shortDataset(found.dataset))], ["as of", found.as_of], ["reads", `${count(found.bars, "bar")} of ${count(found.symbols, "symbol")}, ${bytes(found.read_bytes)}`],
      ["computes", `about ${duration(found.cost_ns / 1e6)} of one core`], ["needs", `${needed} bars before the first value`],
      ...(found.combinations > 1 ? [["answers", `${count(found.combinations, "combination")}, at most ${count(found.rows_max, "row")}`]] : []),
      ...(short.length > 0 ? [["too short", [count(short.length, "symbol"), ...named(short)]]] : []),
      ...(some.length > 0 ? [["too short for some", [count(some.length, "symbol"), ...named(some)]]] : []),
    ];
    fill(cost, h("h2", {}, "Before it runs"), h("dl", { class: "facts-list" }, facts.map(([what, text]) => [h("dt", {}, what), h("dd", {}, text)])),
      found.synthetic && h("p", { class: "hint" }, "Synthetic data: no real market."),
      (found.warnings ?? []).map((warning) => h("p", { class: "warning" }, warning)));
  }

  // Running

  async function run() {
    if (running) return;
    wish += 1;
    const stop = new AbortController();
    running = { stop, scan: null, text: editor.text };
    showRunning(true);
    document.getElementById("nothing")?.remove();
    fill(problem);
    fill(compared);
    showProgress({ state: "submitted" });
    try {
      // The key makes a request that is sent again, after a reply that was lost, the same scan.
      const key = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
      const info = await submitted(asked(), key, stop.signal);
      running.scan = info.scan;
      keep({ scan: info.scan, text: running.text, as_of: asOf.value.trim(), submitted: info.submitted });
      const ended = await watched(info, stop.signal);
      await showEnd(ended, { text: running.text, timeframe: explained?.timeframe });
    } catch (error) {
      if (error instanceof Problem && error.mistakes.length > 0) showMistake(error);
      if (!stop.signal.aborted) showProblem(error);
    } finally {
      running = null;
      showRunning(false);
      progress.hidden = true;
      past.refresh();
    }
  }
  async function submitted(body, key, signal) {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await call("POST", "v1/scans", { body, signal, key });
      } catch (error) {
        if (attempt === SUBMISSIONS_MAX || !(error instanceof Problem) || !["unavailable", "too_many"].includes(error.kind)) throw error;
        await new Promise((resolve) => setTimeout(resolve, error.retryAfterMs));
        await reachable(signal);
      }
    }
  }
  async function watched(info, signal) {
    let last = info;
    await follow(info.scan, (event, data) => {
      if (event === "progress") showProgress({ ...last, segments: data.segments, segments_ended: data.done, step: data.step });
      else if (event === "accepted" || event === "ended") { last = data; showProgress(data); }
    }, signal);
    return last;
  }
  async function showEnd(info, more) {
    if (info.state !== "done") {
      const failure = info.failure?.message ?? "";
      showProblem(new Problem({ kind: info.state, message: info.state === "cancelled" ? "The scan was cancelled." : failure || `The scan ${info.state}.` }));
      return;
    }
    await showAnswer(info.scan, more);
  }
  async function showAnswer(scan, more) {
    document.getElementById("nothing")?.remove();
    try {
      const mine = wish;
      const found = await answer(scan);
      if (mine !== wish) return;
      results.show(scan, found, more);
      shared.answer = { scan, answer: found, timeframe: more.timeframe };
      if (matchMedia("(max-width: 900px)").matches) results.element.scrollIntoView({ block: "start" });
      say(`${grouped(found.counts.matched)} of ${count(found.counts.symbols, "symbol")} matched`);
    } catch (error) {
      if (error.kind !== "too_large") throw error;
      results.showTooLarge(scan);
    }
  }
  async function cancel() {
    if (!running) return;
    const { scan, stop } = running;
    // Until it has an id there is nothing on the server to cancel.
    if (!scan) { stop.abort(new DOMException("cancelled", "AbortError")); return; }
    cancelButton.disabled = true;
    try { await call("DELETE", scanPath(scan)); } catch (error) { showProblem(error); }
    cancelButton.disabled = false;
  }

  function showRunning(on) {
    runButton.disabled = on;
    cancelButton.hidden = !on;
    element.querySelector(".right").setAttribute("aria-busy", String(on));
    if (on) results.hide();
  }
  function showProgress({ state, segments = 0, segments_ended: done = 0, step = 1, scan = "", waits_for: waits = "" }) {
    progress.hidden = false;
    const share = segments > 0 ? done / segments : 0;
    const words = segments > 0 ? `${grouped(done)} of ${count(segments, "segment")}${step > 1 ? `, step ${step}` : ""}` : state;
    let bar = progress.querySelector("progress");
    if (!bar) {
      bar = h("progress", { max: 1, "aria-label": "Progress of the scan" });
      fill(progress, bar, h("span", { class: "words" }), h("code", { class: "quiet-text" }));
    }
    if (segments > 0) bar.value = share;
    else bar.removeAttribute("value");
    progress.children[1].textContent = `${state}: ${words}${waits ? `, waits for a worker of class ${waits}` : ""}`;
    progress.children[2].textContent = scan;
  }
  function showProblem(error) {
    document.getElementById("nothing")?.remove();
    const known = error instanceof Problem;
    fill(problem, h("div", { class: "problem" }, h("p", {}, known ? error.message : "This page has a fault."), known && error.help && h("p", { class: "hint" }, error.help)));
    if (!known) console.error(error);
  }

  // History

  async function openPast(line) {
    wish += 1;
    const mine = wish;
    fill(problem);
    fill(compared);
    const own = documentOf(line.scan);
    try {
      if (line.state !== "done") {
        if (own) load(own.text, own.as_of);
        await (["queued", "running"].includes(line.state) ? attach(line, own) : showEnd(line, {}));
        return;
      }
      if (own) load(own.text, own.as_of);
      const detail = await answer(line.scan);
      if (mine !== wish) return;
      document.getElementById("nothing")?.remove();
      // One that another browser or program sent: what it says is in its answer.
      if (!own) load(documentText(detail.scan), detail.identity.as_of);
      results.show(line.scan, detail, { text: own?.text ?? documentText(detail.scan) });
      shared.answer = { scan: line.scan, answer: detail };
      results.element.scrollIntoView({ block: "nearest" });
    } catch (error) {
      if (mine !== wish) return;
      if (error.kind === "too_large") results.showTooLarge(line.scan);
      else showProblem(error);
    }
  }
  /** Follows a scan that somebody began before. */
  async function attach(line, own) {
    if (running) return;
    running = { stop: new AbortController(), scan: line.scan, text: own?.text ?? "" };
    showRunning(true);
    try {
      await showEnd(await watched(line, running.stop.signal), { text: own?.text });
    } finally {
      running = null;
      showRunning(false);
      progress.hidden = true;
      past.refresh();
    }
  }
  async function compare(before, after) {
    wish += 1;
    const mine = wish;
    try {
      const [old, now] = await Promise.all([answer(before.scan), answer(after.scan)]);
      if (mine !== wish) return;
      const shown = comparison(old, now, { open: (row) => openSymbol(row, { answer: now }), close: () => fill(compared) });
      fill(compared, shown);
      shown.focus();
    } catch (error) { if (mine === wish) showProblem(error); }
  }
  function openSymbol(row, source) {
    shared.answer = { ...source };
    shared.rows = results.table.shown();
    location.hash = address("symbol", shared.linkOf(row, source));
  }
  function load(text, time = "") {
    editor.text = text;
    asOf.value = time ?? "";
    keepDraft(text);
    explain();
  }

  connection.addEventListener("back", () => { words.load(); past.refresh(); explain(); });
  let begun = false;
  async function begin(payload) {
    begun = true;
    editor.text = typeof payload?.text === "string" ? payload.text : sessionStorage.getItem(DRAFT_KEY) ?? EXAMPLE;
    asOf.value = typeof payload?.as_of === "string" ? payload.as_of : "";
    const datasets = await words.load();
    // The example is for the dataset that comes with the program; elsewhere it names the first one.
    if (editor.text === EXAMPLE && datasets.length > 0 && !datasets.some((entry) => entry.name === "demo")) {
      editor.text = EXAMPLE.replace('"demo"', JSON.stringify(datasets[0].name));
    }
    explain();
    past.refresh();
  }

  return {
    element,
    show(payload) {
      if (!begun) begin(payload);
      else if (payload?.text) load(payload.text, payload.as_of);
      else past.refresh();
    },
    refresh() { words.load().then(explain); past.refresh(); },
    hide() {},
    key(event) {
      if (event.key === "e") editor.focus();
      else if (event.key === "/" && !results.element.hidden) results.focusFilter();
      else return false;
      return true;
    },
  };
}
