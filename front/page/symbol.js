// The view of one symbol: its bars with the scan's series, and why it is in the answer or not.

import { Problem, connection, post } from "./api.js";
import { createChart, readout } from "./chart.js";
import { count, fill, h, name, shortDataset } from "./dom.js";
import { address } from "./link.js";
import { shared } from "./shared.js";
import { whyTree } from "./why.js";

const BARS = ["open", "high", "low", "close", "volume"];
/** Name of the scan's condition among the series. */
const SIGNAL = "signal";

/** The view. */
export function create() {
  let payload = null;
  let data = null;
  let loading = null;
  const field = (id, label, size) => {
    const input = h("input", { id, type: "text", size, autocomplete: "off", spellcheck: "false" });
    return [h("span", { class: "field" }, h("label", { for: id }, label), input), input];
  };
  const [datasetField, dataset] = field("symbol-dataset", "Dataset", 18);
  const [symbolField, symbol] = field("symbol-symbol", "Symbol", 10);
  const [asOfField, asOf] = field("symbol-as-of", "As of", 12);
  const [exprsField, exprs] = field("symbol-exprs", "Series, separated by ;", 34);
  const form = h("form", { class: "symbol-form", onsubmit: (event) => { event.preventDefault(); go(); } },
    datasetField, symbolField, asOfField, exprsField, h("button", { type: "submit", class: "main" }, "Show"));
  const chart = createChart({ moved: (index) => showReadout(index) });
  const values = h("dl", { class: "readout", id: "readout" });
  const title = h("h1", {}, "Symbol");
  const note = h("div", { role: "status" });
  const why = h("section", { class: "card", "aria-labelledby": "why-title", hidden: true });
  const button = (text, label, work) => h("button", { type: "button", "aria-label": label, title: label, onclick: work }, text);
  const steps = h("span", { class: "steps", hidden: true }, button("‹ Previous", "Previous symbol of the answer", () => step(-1)), button("Next ›", "Next symbol of the answer", () => step(1)));
  const chartCard = h("section", { class: "card", "aria-label": "Bars", hidden: true },
    h("div", { class: "card-head" }, values,
      h("span", { class: "chart-tools" }, button("+", "Zoom in", () => chart.zoomIn()), button("−", "Zoom out", () => chart.zoomOut()), button("All", "All bars", () => chart.all()))),
    chart.element);
  const empty = h("p", { class: "empty-state" }, "Open a row of an answer, or name a dataset and a symbol.");
  const element = h("div", { class: "symbol-view" }, h("div", { class: "card-head" }, title, steps), form, note, empty, chartCard, why);

  function showReadout(index) {
    fill(values, readout(data, index).map(([what, text]) => h("div", {}, h("dt", {}, h("bdi", {}, what)), h("dd", {}, h("bdi", {}, text)))));
  }
  /** Splits at semicolons that are not inside a name in quotes. */
  const parts = (text) => text.match(/(?:[^;']|'[^']*')+/g)?.map((part) => part.trim()).filter(Boolean) ?? [];

  function go() {
    const written = parts(exprs.value);
    const same = payload && payload.dataset === dataset.value.trim() ? payload : {};
    location.hash = address("symbol", { ...same, dataset: dataset.value.trim(), symbol: symbol.value.trim(), as_of: asOf.value.trim() || undefined, exprs: written });
  }
  function step(by) {
    const rows = shared.rows;
    const at = rows.findIndex((row) => row.symbol === payload?.symbol);
    const next = rows[at + by];
    if (at >= 0 && next && shared.answer) location.hash = address("symbol", shared.linkOf(next, shared.answer));
  }

  async function load() {
    loading?.abort(new DOMException("another symbol", "AbortError"));
    loading = new AbortController();
    const { signal } = loading;
    const wanted = payload;
    fill(title, name(wanted.symbol), " ", h("span", { class: "quiet-text" }, h("bdi", {}, shortDataset(wanted.dataset))));
    fill(note, h("p", { class: "hint" }, "Loading"));
    empty.hidden = true;
    const rest = { dataset: wanted.dataset, symbol: wanted.symbol, as_of: wanted.as_of, bars: true };
    const list = (wanted.exprs ?? []).filter((expr) => !BARS.includes(expr));
    // What the scan's values depend on: without it the series would be others under the same names.
    const { adjust, precision, timeframe, history } = wanted;
    const words = { let: textsOf(wanted.let), def: textsOf(wanted.def), adjust, precision, timeframe, history };
    const signals = wanted.where ? [`(${wanted.where}) as ${SIGNAL}`] : [];
    try {
      let found;
      let problem = null;
      try {
        found = await post("v1/series", { ...rest, ...words, exprs: [...list, ...signals] }, { signal });
      } catch (error) {
        if (!(error instanceof Problem) || error.kind !== "invalid" || list.length + signals.length === 0) throw error;
        // Such as a scan of bars that are built: the bars are shown without its series.
        problem = error;
        found = await post("v1/series", { ...rest, adjust: wanted.adjust, exprs: [] }, { signal });
      }
      if (signal.aborted) return;
      show(found);
      fill(note, problem && h("p", { class: "warning" }, "Without the scan's series: ", problem.message, problem.help && `; ${problem.help}`));
    } catch (error) {
      if (signal.aborted) return;
      chartCard.hidden = true;
      fill(note, h("div", { class: "problem" }, h("p", {}, error.message), error.help && h("p", { class: "hint" }, error.help)));
    }
    loadWhy(wanted, signal);
  }
  const textsOf = (words) => words && Object.fromEntries(Object.entries(words).map(([key, text]) => [key, String(text)]));

  function show({ times, columns }) {
    const infinite = { inf: Infinity, "-inf": -Infinity };
    const numbers = (list) => Float64Array.from(list, (x) => (x === null ? NaN : Number(infinite[x] ?? x)));
    const kindOf = (list) => {
      const known = list.find((x) => x !== null && x !== "inf" && x !== "-inf");
      return { boolean: "condition", string: "text" }[typeof known] ?? "number";
    };
    data = { times, series: [] };
    const texts = [];
    for (const [key, list] of Object.entries(columns)) {
      const kind = kindOf(list);
      if (BARS.includes(key)) data[key] = numbers(list);
      else if (kind === "text") texts.push([key, list[list.length - 1]]);
      else data.series.push({ name: key, kind, values: numbers(list) });
    }
    chartCard.hidden = times.length === 0;
    empty.hidden = times.length > 0;
    if (times.length === 0) empty.textContent = "The symbol has no bars up to this as-of.";
    for (const [key, text] of texts) title.append(h("span", { class: "label" }, h("bdi", {}, key), ": ", h("bdi", {}, text ?? "–")));
    if (times.length === 0) return;
    chart.setData(data);
    chart.label(`Chart of ${payload.symbol}: ${count(times.length, "bar")} from ${times[0]} to ${times[times.length - 1]}. Arrow keys read the bars, plus and minus zoom.`);
    steps.hidden = !shared.rows.some((row) => row.symbol === payload.symbol);
  }
  async function loadWhy(wanted, signal) {
    why.hidden = true;
    if (!wanted.document) return;
    try {
      const [found] = await post("v1/why", { document: wanted.document, as_of: wanted.as_of, symbols: [wanted.symbol] }, { signal });
      if (signal.aborted || !found) return;
      fill(why, whyTree(found));
    } catch (error) {
      if (signal.aborted) return;
      fill(why, h("h2", { id: "why-title" }, "Why"), h("p", { class: "problem" }, error.message));
    }
    why.hidden = false;
  }
  let shown = false;
  connection.addEventListener("back", () => { if (shown && payload) load(); });

  return {
    element,
    show(wanted) {
      shown = true;
      const usable = typeof wanted?.dataset === "string" && typeof wanted?.symbol === "string";
      if (!usable) {
        const first = shared.rows[0];
        if (!payload && first && shared.answer) location.replace(address("symbol", shared.linkOf(first, shared.answer)));
        return;
      }
      if (JSON.stringify(wanted) === JSON.stringify(payload)) return;
      payload = { ...wanted, exprs: Array.isArray(wanted.exprs) ? wanted.exprs.filter((expr) => typeof expr === "string") : [] };
      dataset.value = payload.dataset;
      symbol.value = payload.symbol;
      asOf.value = payload.as_of ?? "";
      exprs.value = payload.exprs.join("; ");
      load();
    },
    refresh: () => payload && load(),
    hide() { shown = false; },
    key(event) {
      if (event.key === "n") step(1);
      else if (event.key === "p") step(-1);
      else return false;
      return true;
    },
  };
}
