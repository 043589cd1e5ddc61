// Closing prices of the rows in view, asked for a few at a time, and drawn as small lines.

import { post } from "./api.js";
import { colours } from "./colours.js";

/** Symbols whose prices are kept. */
const KEPT_MAX = 600;
/** Requests at once. */
const AT_ONCE = 2;
/** Symbols that wait; beyond it the ones that were wanted first are dropped. */
const WAITING_MAX = 40;
/** Bars of a line. */
const BARS = 60;
const DAY_MS = 86_400_000;
/** Days of bars that are asked for, by timeframe: enough for BARS of them. */
const DAYS = { m: 4, h: 30, d: 100, w: 500, M: 2400 };

/** `source()` gives `{dataset, asOf, timeframe, adjust}` of the answer in view; `arrived()` is called after values came. */
export function createSparks(source, arrived) {
  const kept = new Map();
  let waiting = [];
  let running = 0;
  let stopped = new AbortController();

  function draw(canvas, row) {
    const values = kept.get(row.symbol);
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, canvas.width, canvas.height);
    if (values === undefined) {
      if (row.status !== "stale" && !waiting.includes(row.symbol)) waiting.push(row.symbol);
      if (waiting.length > WAITING_MAX) waiting = waiting.slice(-WAITING_MAX);
      queueMicrotask(next);
      return;
    }
    line(context, values, canvas.width, canvas.height);
  }
  async function next() {
    const { dataset, asOf, timeframe, adjust } = source();
    while (running < AT_ONCE && waiting.length > 0 && dataset) {
      const symbol = waiting.shift();
      if (kept.has(symbol)) continue;
      running += 1;
      kept.set(symbol, []);
      const { signal } = stopped;
      ask(dataset, symbol, { asOf, timeframe, adjust }, signal).then((values) => {
        kept.set(symbol, values);
        if (kept.size > KEPT_MAX) kept.delete(kept.keys().next().value);
        arrived();
      }).catch((error) => {
        // A row without a line; it is asked for again if the server was away.
        if (error.kind === "unavailable") kept.delete(symbol);
      }).finally(() => {
        if (signal.aborted) return;
        running -= 1;
        next();
      });
    }
  }
  async function ask(dataset, symbol, { asOf, timeframe, adjust }, signal) {
    // An as-of with a time of day is one of minutes or hours.
    const unit = /[mhdwM]$/.exec(timeframe ?? "")?.[0] ?? (asOf.includes("T") ? "m" : "d");
    const end = Date.parse(asOf);
    const from = Number.isFinite(end) ? new Date(end - DAYS[unit] * DAY_MS).toISOString().slice(0, 10) : undefined;
    const { columns } = await post("v1/series", { dataset, symbol, exprs: ["close"], from, as_of: asOf, adjust }, { signal });
    return (columns.close ?? []).slice(-BARS);
  }
  return {
    draw,
    /** Forgets everything: another answer is in view. */
    reset() {
      stopped.abort(new DOMException("another answer", "AbortError"));
      stopped = new AbortController();
      kept.clear();
      waiting = [];
      running = 0;
    },
  };
}

function line(context, values, width, height) {
  const numbers = values.filter((x) => typeof x === "number");
  if (numbers.length < 2) return;
  const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
  const scale = most > least ? (height - 4) / (most - least) : 0;
  context.beginPath();
  let pen = false;
  values.forEach((x, i) => {
    if (typeof x !== "number") { pen = false; return; }
    const [px, py] = [1 + (i * (width - 2)) / (values.length - 1), height - 2 - (x - least) * scale];
    if (pen) context.lineTo(px, py);
    else context.moveTo(px, py);
    pen = true;
  });
  context.strokeStyle = numbers[numbers.length - 1] >= numbers[0] ? colours().up : colours().down;
  context.lineWidth = 1.3;
  context.stroke();
}
