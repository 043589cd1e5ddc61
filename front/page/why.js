// Why a symbol is in an answer or not: the parts of the conditions as a tree, each with its value.

import { count, h, name, value } from "./dom.js";

/** The tree of one explanation of `/v1/why`. */
export function whyTree(found) {
  const { symbol, status, reason, place, parts = [], labels = {} } = found;
  const words = { matched: "matched", not_matched: "did not match" }[status] ?? `is ${status}`;
  const head = [h("h2", { id: "why-title" }, "Why"),
    h("p", {}, name(symbol), ` ${words}`, place ? `, place ${place}` : "", reason ? [": ", h("bdi", {}, reason)] : "", found.edge ? ". Rounding could change this: it is on an edge." : "."),
    Object.keys(labels).length > 0 && h("p", { class: "hint" }, Object.entries(labels).map(([key, text], i) => [i > 0 ? ", " : "", h("bdi", {}, key), " ", h("bdi", {}, text)]))];
  return [...head, h("ul", { class: "tree" }, branches(parts, 0, parts.length).map(branch))];
}

/** The parts from `begin` to `end` as trees: a part's children follow it, one deeper. */
function branches(parts, begin, end) {
  const found = [];
  for (let i = begin; i < end;) {
    let next = i + 1;
    while (next < end && parts[next].depth > parts[i].depth) next += 1;
    found.push({ part: parts[i], children: branches(parts, i + 1, next) });
    i = next;
  }
  return found;
}

function branch({ part, children }) {
  const truth = part.kind === "condition" ? { true: "yes", false: "no" }[part.value] ?? "na" : "";
  const mark = { yes: "✓", no: "✗", na: "?" }[truth];
  const notes = [
    part.clause && part.clause,
    part.decided && "decided",
    part.bars_since_true > 0 && `true ${count(part.bars_since_true, "bar")} ago`,
    part.bars_since_false > 0 && `false ${count(part.bars_since_false, "bar")} ago`,
    part.value === null && part.bars_needed > 1 && `needs ${count(part.bars_needed, "bar")}`,
  ].filter(Boolean);
  const seen = (part.seen ?? []).map((entry) => (typeof entry === "object" && entry !== null ? Object.values(entry).map(value).join(" ") : value(entry)));
  const line = [
    mark && h("span", { class: `truth ${truth}`, role: "img", "aria-label": { yes: "true", no: "false", na: "NA" }[truth] }, mark), " ",
    h("code", {}, part.text), " ", truth === "" && h("b", { class: "number" }, `= ${value(part.value)}`),
    truth === "na" && h("b", { class: "number" }, "NA"),
    notes.length > 0 && h("span", { class: "notes" }, notes.join(", ")),
    seen.length > 0 && h("span", { class: "notes" }, `seen: ${seen.join(", ")}`),
  ];
  const decided = part.decided ? "decided" : "";
  if (children.length === 0) return h("li", { class: decided }, line);
  return h("li", { class: decided }, h("details", { open: true }, h("summary", {}, line), h("ul", {}, children.map(branch))));
}
