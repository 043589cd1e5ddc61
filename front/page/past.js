// Scans that were run: those that the server lists, with the documents that this browser sent.

import { get } from "./api.js";
import { ago, fill, h, name, shortDataset } from "./dom.js";

const KEY = "trawl.scans";
/** Documents that this browser keeps. */
const KEPT_MAX = 50;
/** Longest document that is kept, in characters. */
const KEPT_CHARACTERS_MAX = 20_000;
/** Scans that are listed. */
const LISTED = 30;

function kept() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter((entry) => typeof entry?.scan === "string" && typeof entry.text === "string") : [];
  } catch {
    return [];
  }
}

/** Keeps the document of a scan. */
export function keep(entry) {
  if (entry.text.length > KEPT_CHARACTERS_MAX) return;
  const all = [entry, ...kept().filter(({ scan }) => scan !== entry.scan)].slice(0, KEPT_MAX);
  try {
    localStorage.setItem(KEY, JSON.stringify(all));
  } catch { /* a browser that keeps nothing still shows the server's list */ }
}

/** The document that this browser sent for a scan. */
export const documentOf = (scan) => kept().find((entry) => entry.scan === scan);

/** The list. `open(line)` shows a scan's answer, `compare(before, after)` two of them. */
export function createPast({ open, compare }) {
  const rows = h("ul", { class: "past" });
  const button = h("button", { type: "button", disabled: true, onclick: () => compare(...[...chosen].reverse()) }, "Compare two answers");
  const note = h("p", { class: "hint" });
  const element = h("section", { class: "card", "aria-labelledby": "past-title" },
    h("div", { class: "card-head" }, h("h2", { id: "past-title" }, "History"), button), rows, note);
  /** At most two scans, the one chosen last in front. */
  let chosen = [];
  let lines = [];

  function choose(line, on) {
    chosen = chosen.filter(({ scan }) => scan !== line.scan);
    if (on) chosen = [line, ...chosen].slice(0, 2);
    // The older one is the one before.
    chosen.sort((a, b) => (b.submitted ?? "").localeCompare(a.submitted ?? ""));
    show();
  }
  function show() {
    button.disabled = chosen.length !== 2;
    note.textContent = lines.length === 0 ? "No scan was run yet." : "Mark two that are done to compare them.";
    fill(rows, lines.map((line) => {
      const done = line.state === "done";
      const label = line.condition || line.scan;
      const box = h("input", { type: "checkbox", "aria-label": `Compare ${line.scan}`, disabled: !done, onchange: (event) => choose(line, event.target.checked) });
      box.checked = chosen.some(({ scan }) => scan === line.scan);
      return h("li", {}, box,
        h("button", { type: "button", class: "entry", onclick: () => open(line), title: line.scan },
          h("bdi", { class: "condition" }, label),
          h("span", { class: "facts" }, h("span", { class: `state ${line.state}` }, line.state), " ", name(shortDataset(line.dataset ?? ""), { class: "name quiet-text" }), " ", ago(line.submitted ?? ""))));
    }));
  }
  async function refresh() {
    const { scans } = await get(`v1/scans?limit=${LISTED}`);
    lines = scans;
    chosen = chosen.filter(({ scan }) => lines.some((line) => line.scan === scan));
    show();
  }
  show();
  return { element, refresh: () => refresh().catch(() => {}) };
}
