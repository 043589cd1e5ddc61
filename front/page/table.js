// The table of an answer: any number of rows, of which those in view are elements.
//
// An answer is turned into columns once; sorting and filtering work on an array of row numbers. Texts are ranked at their first
// sort, so that every later comparison is one of numbers.

import { fill, h, say, uniqueId, value } from "./dom.js";

/** Height of a row in pixels, as in views.css. */
const ROW = 30;
/** Rows beyond the view that are kept as elements, above and below. */
const SPARE = 6;
/** Rows beyond which browsers lose pixels: the height of an element is limited. */
const ROWS_MAX = 500_000;
const FIXED = new Set(["time", "place", "symbol", "status", "edge", "provisional", "reason"]);

/** The columns of an answer: `{key, label, kind, values}`, in the order in which they are shown. */
export function columnsOf(answer) {
  const { rows, text_columns: texts = [] } = answer;
  if (rows.length === 0) return [];
  const keys = Object.keys(rows[0]);
  const kindOf = (key) => {
    if (texts.includes(key)) return "text";
    for (const row of rows) {
      if (typeof row[key] === "boolean") return "condition";
      if (typeof row[key] === "number") return "number";
      if (typeof row[key] === "string" && row[key] !== "inf" && row[key] !== "-inf") return "text";
    }
    return "number";
  };
  const column = (key, kind = kindOf(key)) => ({ key, label: key, kind, values: rows.map((row) => row[key]), ranks: null });
  const before = keys.slice(0, keys.indexOf("place")).filter((key) => key !== "time");
  const selected = keys.slice(keys.indexOf("reason") + 1).filter((key) => !FIXED.has(key));
  const flags = {
    key: "flags", label: "flags", kind: "text", ranks: null,
    values: rows.map((row) => [row.edge && "edge", row.provisional && "provisional"].filter(Boolean).join(" ")),
  };
  const times = new Set(rows.map((row) => row.time)).size > 1 ? [column("time", "text")] : [];
  return [
    column("symbol", "text"), column("place", "number"), ...before.map((key) => column(key)), ...times,
    { key: "trend", label: "trend", kind: "spark", values: null }, ...selected.map((key) => column(key)),
    column("status", "text"), ...(flags.values.some(Boolean) ? [flags] : []), column("reason", "text"),
  ];
}

function ranksOf(column) {
  if (column.ranks) return column.ranks;
  const { values, kind } = column;
  const ranks = new Float64Array(values.length);
  if (kind === "text") {
    const order = new Map([...new Set(values)].filter((text) => text !== null && text !== "").sort().map((text, i) => [text, i]));
    values.forEach((text, i) => { ranks[i] = order.get(text) ?? NaN; });
  } else {
    const infinite = { inf: Infinity, "-inf": -Infinity };
    values.forEach((x, i) => { ranks[i] = x === null || x === undefined ? NaN : Number(infinite[x] ?? x); });
  }
  column.ranks = ranks;
  return ranks;
}

/** The test of a filter's text: words that a row contains, and comparisons such as `rsi<30`. */
export function filterOf(text, columns) {
  const words = [];
  const tests = [];
  for (const word of text.toLowerCase().split(/\s+/).filter(Boolean)) {
    const match = /^(.+?)(<=|>=|<|>|=)(-?[\d.]+(?:e[+-]?\d+)?)$/.exec(word);
    const column = match && columns.find((c) => c.values && c.kind !== "text" && c.label.toLowerCase().replaceAll(/\s/g, "") === match[1]);
    if (!column) { words.push(word); continue; }
    const [ranks, limit] = [ranksOf(column), Number(match[3])];
    tests.push({ "<": (i) => ranks[i] < limit, ">": (i) => ranks[i] > limit, "<=": (i) => ranks[i] <= limit,
      ">=": (i) => ranks[i] >= limit, "=": (i) => ranks[i] === limit }[match[2]]);
  }
  return { words, tests };
}

/** `open(row)` is called for a row that is opened; `drawSpark(canvas, row)` for each row that comes into view. */
export function createTable({ open, drawSpark }) {
  let columns = [];
  let rows = [];
  let cut = 0;
  let haystacks = [];
  let order = new Uint32Array(0);
  let sort = { key: "", down: false };
  let filter = { text: "", statuses: null };
  let active = 0;
  let pool = [];
  const gridId = uniqueId("grid");
  const head = h("div", { class: "row head", role: "row", "aria-rowindex": 1 });
  const body = h("div", { class: "rows", role: "rowgroup" });
  const grid = h("div", { class: "grid", role: "grid", tabindex: 0, id: gridId, "aria-label": "Answer" }, h("div", { role: "rowgroup", class: "heads" }, head), body);
  const empty = h("p", { class: "empty", hidden: true });
  const element = h("div", { class: "answer-table" }, grid, empty);

  function setAnswer(answer) {
    columns = columnsOf(answer);
    rows = answer.rows.slice(0, ROWS_MAX);
    cut = answer.rows.length - rows.length;
    const texts = columns.filter((column) => column.kind === "text");
    haystacks = rows.map((_, i) => texts.map((column) => column.values[i] ?? "").join("\u0000").toLowerCase());
    sort = { key: "", down: false };
    active = 0;
    pool = [];
    fill(body);
    fill(head, columns.map((column) => h("div", { role: "columnheader", class: `cell ${column.kind} c-${/^[a-z]+$/.test(column.key) ? column.key : "x"}`, "data-key": column.key },
      column.kind === "spark" ? column.label : h("button", { type: "button", onclick: () => sortBy(column.key) }, h("bdi", {}, column.label), h("span", { class: "arrow", "aria-hidden": "true" })))));
    const template = columns.map(widthOf).join(" ");
    grid.style.setProperty("--columns", template);
    grid.setAttribute("aria-colcount", columns.length);
    update();
  }

  const WIDTHS = { place: "4.2rem", symbol: "8.5rem", status: "7.5rem", reason: "minmax(10rem, 1fr)", flags: "8rem", trend: "8rem", time: "11rem" };
  const widthOf = ({ key, kind, label }) => WIDTHS[key] ?? (kind === "text" ? "8.5rem" : `${Math.min(14, Math.max(6.2, label.length * 0.62 + 3))}rem`);

  function sortBy(key) {
    sort = sort.key === key ? (sort.down ? { key: "", down: false } : { key, down: true }) : { key, down: false };
    update();
    say(sort.key ? `Sorted by ${sort.key}, ${sort.down ? "descending" : "ascending"}` : "In the order of the answer");
  }

  /** Filters, sorts and shows anew. Its duration is on the element, for the tests. */
  function update() {
    const begun = performance.now();
    const { words, tests } = filterOf(filter.text, columns);
    const status = columns.find((column) => column.key === "status")?.values;
    const kept = new Uint32Array(rows.length);
    let n = 0;
    for (let i = 0; i < rows.length; i += 1) {
      if (filter.statuses && !filter.statuses.has(status[i])) continue;
      if (words.some((word) => !haystacks[i].includes(word)) || tests.some((test) => !test(i))) continue;
      kept[n++] = i;
    }
    order = kept.subarray(0, n);
    const column = columns.find((candidate) => candidate.key === sort.key);
    if (column) {
      const ranks = ranksOf(column);
      const way = sort.down ? -1 : 1;
      // NA is last in both directions; equal rows keep the order of the answer.
      order.sort((a, b) => {
        const [x, y] = [ranks[a], ranks[b]];
        if (x === y) return a - b;
        if (x !== x) return y !== y ? a - b : 1;
        return y !== y ? -1 : (x - y) * way;
      });
    }
    for (const cell of head.children) {
      const mine = cell.dataset.key === sort.key;
      cell.setAttribute("aria-sort", mine ? (sort.down ? "descending" : "ascending") : "none");
      const arrow = cell.querySelector(".arrow");
      if (arrow) arrow.textContent = mine ? (sort.down ? "▼" : "▲") : "";
    }
    active = Math.min(active, Math.max(0, n - 1));
    body.style.height = `${n * ROW}px`;
    // Few rows need no room of many; the rest is for the head and a scroll bar.
    grid.style.setProperty("--full", `${(n + 1) * ROW + 18}px`);
    grid.setAttribute("aria-rowcount", n + 1);
    empty.hidden = n > 0;
    empty.textContent = rows.length === 0 ? "The answer has no rows." : "No row fits the filter.";
    grid.scrollTop = 0;
    draw();
    grid.dataset.updateMs = (performance.now() - begun).toFixed(1);
    grid.dispatchEvent(new CustomEvent("updated", { detail: { shown: n, all: rows.length, cut } }));
  }

  function draw() {
    const height = Math.max(grid.clientHeight, ROW);
    const first = Math.max(0, Math.floor(grid.scrollTop / ROW) - SPARE);
    const last = Math.min(order.length, Math.ceil((grid.scrollTop + height) / ROW) + SPARE);
    const wanted = last - first;
    while (pool.length < wanted) {
      const row = h("div", { role: "row", class: "row" }, columns.map((column) =>
        h("div", { role: "gridcell", class: `cell ${column.kind} c-${/^[a-z]+$/.test(column.key) ? column.key : "x"}` }, column.kind === "spark" ? h("canvas", { width: 96, height: 22, "aria-hidden": "true" }) : h("bdi", {}))));
      pool.push(row);
      body.append(row);
    }
    pool.forEach((element, slot) => {
      const at = first + slot;
      element.hidden = at >= last;
      if (at < last) show(element, at);
    });
  }
  function show(element, at) {
    const i = order[at];
    element.style.transform = `translateY(${at * ROW}px)`;
    element.id = `${gridId}-${at}`;
    element.setAttribute("aria-rowindex", at + 2);
    element.setAttribute("aria-selected", String(at === active));
    element.dataset.at = at;
    element.dataset.status = rows[i].status;
    columns.forEach((column, c) => {
      const cell = element.children[c];
      if (column.kind === "spark") {
        if (element.dataset.row !== String(i)) drawSpark(cell.firstChild, rows[i]);
        return;
      }
      const text = column.values[i] === "" ? "" : value(column.values[i]);
      const shown = column.key === "place" && column.values[i] === null ? "" : text;
      if (cell.firstChild.textContent !== shown) { cell.firstChild.textContent = shown; cell.title = shown; }
    });
    element.dataset.row = i;
  }

  let frame = 0;
  const redraw = () => { cancelAnimationFrame(frame); frame = requestAnimationFrame(draw); };
  grid.addEventListener("scroll", redraw, { passive: true });
  new ResizeObserver(redraw).observe(grid);

  function activate(at) {
    if (order.length === 0) return;
    active = Math.max(0, Math.min(order.length - 1, at));
    const top = active * ROW;
    const room = grid.clientHeight - head.offsetHeight;
    if (top < grid.scrollTop) grid.scrollTop = top;
    else if (top + ROW > grid.scrollTop + room) grid.scrollTop = top + ROW - room;
    draw();
    grid.setAttribute("aria-activedescendant", `${gridId}-${active}`);
  }
  grid.addEventListener("keydown", (event) => {
    if (event.target !== grid) return;
    const page = Math.max(1, Math.floor(grid.clientHeight / ROW) - 2);
    const to = { ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page, Home: 0, End: order.length - 1 }[event.key];
    if (to !== undefined) activate(to);
    else if (event.key === "Enter" && order.length > 0) open(rows[order[active]]);
    else return;
    event.preventDefault();
  });
  body.addEventListener("click", (event) => {
    const row = event.target.closest(".row");
    if (!row) return;
    active = Number(row.dataset.at);
    open(rows[order[active]]);
  });

  return {
    element, grid, setAnswer,
    setFilter: (text) => { filter = { ...filter, text }; update(); },
    setStatuses: (statuses) => { filter = { ...filter, statuses }; update(); },
    /** Draws the sparklines of the rows in view again. */
    sparksChanged: () => pool.forEach((element) => {
      const c = columns.findIndex((column) => column.kind === "spark");
      if (!element.hidden && c >= 0) drawSpark(element.children[c].firstChild, rows[element.dataset.row]);
    }),
    /** The rows in their present order. */
    shown: () => Array.from(order, (i) => rows[i]),
    focus: () => { grid.focus(); activate(active); },
  };
}
