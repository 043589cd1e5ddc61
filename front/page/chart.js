// Candles, volume, signals and series on a canvas, any number of bars: where a pixel has several bars, it shows their extremes.

import { colours } from "./colours.js";
import { h, value } from "./dom.js";
import { layout, spanOf, drawCandles, drawColumns, drawLine, drawSignals, drawScale, drawTimes } from "./draw.js";

/** Fewest bars in view. */
const BARS_MIN = 10;
/** Bars in view at first. */
const BARS_FIRST = 180;
/** Room for the numbers at the right, in pixels. */
const SCALE_WIDTH = 62;

/**
 * A chart. `data`: `{times, open, high, low, close, volume, series}`; `series` are `{name, kind, values}` with kind `number` or
 * `condition`. `moved(index)` is called when the bar under the cursor is another one.
 */
export function createChart({ moved }) {
  const canvas = h("canvas", { tabindex: 0, role: "img", class: "chart", "aria-label": "Chart", "aria-describedby": "readout" });
  const element = h("div", { class: "chart-box" }, canvas);
  let data = null;
  let panels = [];
  let from = 0;
  let to = 0;
  let cursor = -1;
  let frame = 0;

  const bars = () => data?.times.length ?? 0;
  const redraw = () => { cancelAnimationFrame(frame); frame = requestAnimationFrame(draw); };

  function setData(found) {
    data = found;
    panels = layout(found);
    canvas.style.height = `${panels.reduce((sum, panel) => sum + panel.height, 0) + 24}px`;
    from = Math.max(0, bars() - BARS_FIRST);
    to = bars();
    setCursor(bars() - 1);
    redraw();
  }

  /** Shows the bars from `a` to `b`, moved and widened until that is possible. */
  function view(a, b) {
    const wide = Math.min(bars(), Math.max(Math.min(BARS_MIN, bars()), b - a));
    from = Math.max(0, Math.min(bars() - wide, a));
    to = from + wide;
    redraw();
  }
  const zoom = (factor, around) => {
    const share = (around - from) / (to - from);
    const wide = (to - from) * factor;
    view(around - share * wide, around + (1 - share) * wide);
  };
  const pan = (count) => view(from + count, to + count);
  function setCursor(index) {
    cursor = Math.max(-1, Math.min(bars() - 1, index));
    moved(cursor);
    redraw();
  }

  function draw() {
    const begun = performance.now();
    const ratio = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (width === 0 || !data) return;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const theme = colours();
    context.clearRect(0, 0, width, height);
    context.font = `11px ${getComputedStyle(canvas).fontFamily}`;
    const room = { left: 0, width: width - SCALE_WIDTH, from, to, per: (width - SCALE_WIDTH) / (to - from) };
    let top = 0;
    for (const panel of panels) {
      const place = { ...room, top: top + 6, height: panel.height - 12 };
      const span = spanOf(panel, data, from, to);
      drawScale(context, place, span, theme, panel, width);
      context.save();
      context.beginPath();
      context.rect(place.left, top, place.width, panel.height);
      context.clip();
      if (panel.kind === "price") drawCandles(context, place, span, data, theme);
      if (panel.kind === "volume") drawColumns(context, place, span, data, theme);
      if (panel.kind === "signal") drawSignals(context, place, panel.series, theme);
      else for (const series of panel.series) drawLine(context, place, span, series.values, theme.series[series.colour]);
      context.restore();
      drawNames(context, place, panel, theme);
      top += panel.height;
      context.fillStyle = theme.line;
      context.fillRect(0, top - 0.5, width, 1);
    }
    drawTimes(context, room, top, data.times, theme);
    if (cursor >= from && cursor < to) {
      const x = (cursor + 0.5 - from) * room.per;
      context.fillStyle = theme.soft;
      context.fillRect(Math.round(x), 0, 1, top);
    }
    canvas.dataset.drawMs = (performance.now() - begun).toFixed(1);
    canvas.dataset.bars = String(Math.round(to - from));
  }
  function drawNames(context, place, panel, theme) {
    let x = place.left + 6;
    const named = panel.kind === "volume" ? [{ name: "volume", colour: -1 }, ...panel.series] : panel.series;
    for (const { name, colour } of named) {
      const text = name.length > 40 ? `${name.slice(0, 39)}…` : name;
      const wide = context.measureText(text).width;
      if (x + wide > place.width) break;
      context.save();
      context.globalAlpha = 0.8;
      context.fillStyle = theme.panel;
      context.fillRect(x - 2, place.top - 2, wide + 4, 14);
      context.restore();
      context.fillStyle = panel.kind === "signal" ? theme.accent : theme.series[colour] ?? theme.soft;
      context.fillText(text, x, place.top + 9);
      x += wide + 14;
    }
  }

  const barAt = (event) => from + (event.offsetX / (canvas.clientWidth - SCALE_WIDTH)) * (to - from);
  canvas.addEventListener("wheel", (event) => {
    if (!data) return;
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(((event.deltaX || event.deltaY) / 600) * (to - from));
    else zoom(Math.exp(Math.max(-300, Math.min(300, event.deltaY)) / 500), barAt(event));
  }, { passive: false });

  // One finger or the mouse moves, two fingers zoom.
  const pointers = new Map();
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event.offsetX);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!data) return;
    const before = pointers.get(event.pointerId);
    if (before === undefined) { setCursor(Math.floor(barAt(event))); return; }
    const per = (to - from) / (canvas.clientWidth - SCALE_WIDTH);
    if (pointers.size === 2) {
      const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
      const [old, now] = [Math.abs(before - other), Math.abs(event.offsetX - other)];
      if (old > 4 && now > 4) zoom(old / now, from + ((event.offsetX + other) / 2) * per);
    } else pan((before - event.offsetX) * per);
    pointers.set(event.pointerId, event.offsetX);
  });
  for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, (event) => pointers.delete(event.pointerId));

  canvas.addEventListener("keydown", (event) => {
    if (!data || event.ctrlKey || event.metaKey || event.altKey) return;
    const tenth = (to - from) / 10;
    const follow = (index) => {
      setCursor(index);
      if (cursor < from) pan(cursor - from);
      if (cursor >= to) pan(cursor + 1 - to);
    };
    const centre = cursor >= from && cursor < to ? cursor + 0.5 : (from + to) / 2;
    const act = {
      ArrowLeft: () => (event.shiftKey ? pan(-tenth) : follow(cursor - 1)), ArrowRight: () => (event.shiftKey ? pan(tenth) : follow(cursor + 1)),
      "+": () => zoom(0.7, centre), "=": () => zoom(0.7, centre), "-": () => zoom(1.4, centre), 0: () => view(0, bars()),
      Home: () => { view(0, to - from); setCursor(0); }, End: () => { view(bars() - (to - from), bars()); setCursor(bars() - 1); },
      PageUp: () => pan(-tenth * 9), PageDown: () => pan(tenth * 9),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
  new ResizeObserver(redraw).observe(canvas);
  addEventListener("trawl-theme", redraw);

  return {
    element, canvas, setData,
    label: (text) => canvas.setAttribute("aria-label", text),
    zoomIn: () => zoom(0.7, (from + to) / 2), zoomOut: () => zoom(1.4, (from + to) / 2), all: () => view(0, bars()),
  };
}

/** The values at a bar, as pairs of a name and a text. */
export function readout(data, index) {
  if (index < 0 || !data) return [];
  const bars = ["open", "high", "low", "close", "volume"].filter((key) => data[key]).map((key) => [key, value(number(data[key][index]))]);
  const series = data.series.map(({ name, kind, values }) => [name, kind === "condition" ? ["false", "true"][values[index]] ?? "–" : value(number(values[index]))]);
  return [["time", data.times[index]], ...bars, ...series];
}
const number = (x) => (Number.isNaN(x) ? null : x);
