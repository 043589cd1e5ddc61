// The difference of two answers: what entered, what left, and what changed among the matches of both.

import { count, grouped, h, value } from "./dom.js";

/** Rows that are listed. */
const LISTED_MAX = 400;

/** What identifies a row: its symbol, scan and combination of a sweep. */
function keysOf(answer) {
  const names = answer.rows.length > 0 ? Object.keys(answer.rows[0]) : [];
  return ["symbol", ...names.slice(0, Math.max(0, names.indexOf("place"))).filter((key) => key !== "time")];
}

/** `{entered, left, changed, same}`: rows as `{symbol, before, after}`. */
export function difference(before, after) {
  const keys = [...new Set([...keysOf(before), ...keysOf(after)])];
  const id = (row) => JSON.stringify(keys.map((key) => row[key] ?? null));
  const matched = (answer) => new Map(answer.rows.filter((row) => row.status === "matched").map((row) => [id(row), row]));
  const [old, now] = [matched(before), matched(after)];
  const first = (answer) => (answer.rows.length > 0 ? Object.keys(answer.rows[0]) : []);
  const selected = first(after).slice(first(after).indexOf("reason") + 1).filter((key) => first(before).includes(key));
  const entered = [...now].filter(([key]) => !old.has(key)).map(([, row]) => ({ symbol: row.symbol, after: row }));
  const left = [...old].filter(([key]) => !now.has(key)).map(([, row]) => ({ symbol: row.symbol, before: row }));
  const both = [...now].filter(([key]) => old.has(key)).map(([key, row]) => ({ symbol: row.symbol, before: old.get(key), after: row }));
  const differs = ({ before: a, after: b }) => selected.some((key) => a[key] !== b[key]);
  // A row that left is perhaps in the later answer with another status, which says why.
  const statuses = new Map(after.rows.map((row) => [id(row), row]));
  for (const line of left) line.now = statuses.get(id(line.before));
  return { entered, left, changed: both.filter(differs), same: both.filter((line) => !differs(line)).length, selected };
}

/** Shows the difference. */
export function comparison(before, after, { open, close }) {
  const found = difference(before, after);
  const named = ({ identity }) => `${identity.dataset} as of ${identity.as_of}`;
  const samePlan = before.identity.plan === after.identity.plan;
  const line = (kind, entry) => {
    const row = entry.after ?? entry.before;
    const values = found.selected.map((key) => {
      const [a, b] = [entry.before?.[key], entry.after?.[key]];
      const changed = entry.before && entry.after && a !== b;
      return h("td", {}, changed ? [h("span", { class: "quiet-text" }, value(a)), " → ", value(b)] : value(entry.after ? b : a));
    });
    const why = kind === "left" ? entry.now ? [entry.now.status, entry.now.reason].filter(Boolean).join(": ") : "no row" : "";
    return h("tr", {}, h("td", {}, h("span", { class: `change ${kind}` }, kind)),
      h("th", { scope: "row" }, h("button", { type: "button", class: "link", onclick: () => open(row) }, h("bdi", {}, entry.symbol))), values, h("td", {}, why));
  };
  const lines = [...found.entered.map((entry) => ["entered", entry]), ...found.left.map((entry) => ["left", entry]), ...found.changed.map((entry) => ["changed", entry])];
  const element = h("section", { class: "card comparison", "aria-labelledby": "comparison-title", tabindex: -1 },
    h("div", { class: "card-head" }, h("h2", { id: "comparison-title" }, "Two answers compared"), h("button", { type: "button", class: "quiet", onclick: close }, "Close")),
    h("p", {}, h("bdi", {}, named(before)), " → ", h("bdi", {}, named(after)), samePlan ? "" : " (two different scans)"),
    h("p", { class: "counts" }, `${grouped(found.entered.length)} entered, ${found.left.length} left, ${found.changed.length} with other values, ${found.same} the same`));
  if (lines.length > 0) {
    const head = h("tr", {}, ["change", "symbol", ...found.selected, "now"].map((text) => h("th", { scope: "col" }, h("bdi", {}, text))));
    element.append(h("div", { class: "scrolls", tabindex: 0, role: "region", "aria-label": "Differences" },
      h("table", {}, h("thead", {}, head), h("tbody", {}, lines.slice(0, LISTED_MAX).map(([kind, entry]) => line(kind, entry))))));
  }
  if (lines.length > LISTED_MAX) element.append(h("p", { class: "hint" }, `and ${count(lines.length - LISTED_MAX, "more row")}; 'trawl diff' lists all`));
  return element;
}

