// Elements, and numbers and times as text.
//
// Elements are made by `h` and nowhere else: whatever a server sent becomes a text node or an attribute, never markup, so that
// a symbol named <script> is a symbol named <script>.

const SVG = "http://www.w3.org/2000/svg";

/** An element. `attributes`: `on...` are listeners, `class`, others by name; null and false are left out. */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** An element of SVG. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/** Appends elements and texts, lists of them included. */
export function append(element, children) {
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replaces what an element contains. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

let lastId = 0;
/** An id that no other element has. */
export const uniqueId = (stem) => `${stem}-${++lastId}`;

/** Says something to screen readers, once. */
export function say(text) {
  const said = document.getElementById("said");
  if (said.textContent === text) said.textContent = "";
  said.textContent = text;
}

/** A name between marks that isolate its direction, so that a right-to-left name does not turn the text around it. */
export const name = (text, more = {}) => h("bdi", { class: "name", title: text, ...more }, text);

const SIGNIFICANT = 6;

/** A value of an answer: six significant digits, NA as a dash. */
export function value(x) {
  if (x === null || x === undefined) return "–";
  if (typeof x === "boolean") return x ? "true" : "false";
  if (typeof x !== "number") return String(x);
  if (Number.isInteger(x) && Math.abs(x) < 1e15) return grouped(x);
  const size = Math.abs(x);
  if (size >= 1e15 || size < 1e-6) return x.toExponential(4);
  return grouped(Number(x.toPrecision(SIGNIFICANT)));
}

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 12 });
/** A number with its thousands apart. */
export const grouped = (x) => whole.format(x);

/** Bytes in the largest unit that keeps them above one. */
export function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) [count, unit] = [count / 1000, unit + 1];
  return `${unit === 0 ? count : count.toPrecision(3)} ${units[unit]}`;
}

/** A duration in milliseconds. */
export function duration(ms) {
  if (!Number.isFinite(ms)) return "–";
  if (ms >= 120_000) return `${(ms / 60_000).toFixed(1)} min`;
  if (ms >= 1000) return `${(ms / 1000).toPrecision(3)} s`;
  if (ms === 0) return "0 s";
  if (ms >= 10) return `${Math.round(ms)} ms`;
  return ms >= 0.1 ? `${ms.toFixed(1)} ms` : `${Math.round(ms * 1000)} µs`;
}

/** The date, and the time where it is not midnight, of microseconds since 1970 in UTC. */
export function instant(us) {
  if (!Number.isFinite(us)) return "–";
  const date = new Date(us / 1000);
  if (Number.isNaN(date.getTime())) return "–";
  const text = date.toISOString();
  return text.slice(11, 19) === "00:00:00" ? text.slice(0, 10) : `${text.slice(0, 10)} ${text.slice(11, 19)} UTC`;
}

/** How long ago a time in RFC 3339 was. */
export function ago(text) {
  const seconds = (Date.now() - Date.parse(text)) / 1000;
  if (!Number.isFinite(seconds)) return text;
  if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s ago`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  return seconds < 86_400 ? `${Math.round(seconds / 3600)} h ago` : text.slice(0, 10);
}

/** `demo@05b9eb10` of `demo@05b9eb10...`. */
export const shortDataset = (text) => text.replace(/@([0-9a-f]{8})[0-9a-f]+$/, "@$1");

/** `1 bar`, `2 bars`. */
export const count = (n, noun) => `${grouped(n)} ${noun}${n === 1 ? "" : "s"}`;

/** A function that runs once its last call is `ms` old. */
export function debounced(ms, work) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), ms);
  };
}
