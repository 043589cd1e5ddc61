// How a chart is drawn. Every function takes a place: `{left, width, top, height}` in pixels, and the bars `from` to `to` with
// `per` pixels for each. Values are arrays of numbers, NaN where there is none.

const HEIGHTS = { price: 300, volume: 70, signal: 30, series: 96 };
/** Panels of series; further ones share the last. */
const PANELS_MAX = 8;
const COLOURS = 6;

/** Bars at the end that decide whether a series is a price, how near it is then, and for what share of these bars. */
const JUDGED = 500;
const NEAR = 0.25;
const SHARE = 0.8;

/** Whether a series follows the closing prices, as averages and bands do. */
function isPrice(values, close) {
  let [near, known] = [0, 0];
  for (let i = Math.max(0, values.length - JUDGED); i < values.length; i += 1) {
    if (Number.isNaN(values[i]) || !(close?.[i] > 0)) continue;
    known += 1;
    if (Math.abs(values[i] / close[i] - 1) < NEAR) near += 1;
  }
  return known > 0 && near >= known * SHARE;
}

/** The panels of a chart. A series that follows the prices is drawn over them. */
export function layout(data) {
  const panels = [{ kind: "price", height: HEIGHTS.price, series: [] }];
  const own = [];
  const signals = [];
  let colour = 0;
  for (const series of data.series) {
    if (series.kind === "condition") { signals.push({ ...series, colour: 0 }); continue; }
    const coloured = { ...series, colour: colour++ % COLOURS };
    const overlaps = isPrice(series.values, data.close);
    if (overlaps) panels[0].series.push(coloured);
    else own.push(coloured);
  }
  for (const series of signals) panels.push({ kind: "signal", height: HEIGHTS.signal, series: [series] });
  if (data.volume) panels.push({ kind: "volume", height: HEIGHTS.volume, series: [] });
  own.forEach((series, i) => {
    if (i < PANELS_MAX) panels.push({ kind: "series", height: HEIGHTS.series, series: [series] });
    else panels[panels.length - 1].series.push(series);
  });
  return panels;
}

/** Least and largest number of some arrays between two bars. */
export function extremes(arrays, from, to) {
  let [least, most] = [Infinity, -Infinity];
  for (const values of arrays) {
    if (!values) continue;
    for (let i = Math.max(0, Math.floor(from)); i < Math.min(values.length, Math.ceil(to)); i += 1) {
      const x = values[i];
      if (x < least && x > -Infinity) least = x;
      if (x > most && x < Infinity) most = x;
    }
  }
  return [least, most];
}

/** The numbers at the lower and upper end of a panel. */
export function spanOf(panel, data, from, to) {
  if (panel.kind === "signal") return [0, 1];
  const arrays = panel.series.map((series) => series.values);
  if (panel.kind === "price") arrays.push(data.low ?? data.close, data.high ?? data.close);
  if (panel.kind === "volume") arrays.push(data.volume);
  let [least, most] = extremes(arrays, from, to);
  if (panel.kind === "volume") least = 0;
  if (!(most > least)) {
    if (!Number.isFinite(least)) return [0, 1];
    const margin = Math.abs(least) * 0.01 || 1;
    return [least - margin, least + margin];
  }
  return panel.kind === "volume" ? [0, most] : [least, most];
}

const yOf = (place, [least, most]) => (x) => place.top + place.height - ((x - least) / (most - least)) * place.height;

/** Calls `work(x, first, behind)` for each pixel with the bars that it shows, or for each bar with its middle. */
function eachColumn(place, work) {
  const { from, to, per, width } = place;
  if (per >= 1) {
    for (let i = Math.floor(from); i < Math.ceil(to); i += 1) work((i + 0.5 - from) * per, i, i + 1);
    return;
  }
  for (let x = 0; x < width; x += 1) {
    const first = Math.floor(from + x / per);
    const behind = Math.min(Math.ceil(to), Math.max(first + 1, Math.floor(from + (x + 1) / per)));
    if (first < behind) work(x + 0.5, first, behind);
  }
}

export function drawCandles(context, place, span, data, theme) {
  const y = yOf(place, span);
  const { open, high, low, close } = data;
  const body = Math.max(1, Math.min(14, place.per * 0.7));
  eachColumn(place, (x, first, behind) => {
    const last = close[behind - 1];
    if (Number.isNaN(last) || last === undefined) return;
    const begin = open ? open[first] : close[Math.max(0, first - 1)];
    const [least, most] = high && low ? [extremes([low], first, behind)[0], extremes([high], first, behind)[1]] : extremes([close], first, behind);
    context.fillStyle = last >= begin ? theme.up : theme.down;
    context.fillRect(Math.round(x) - 0.5, y(most), 1, Math.max(1, y(least) - y(most)));
    if (place.per >= 3) {
      const [top, bottom] = [y(Math.max(begin, last)), y(Math.min(begin, last))];
      context.fillRect(x - body / 2, top, body, Math.max(1, bottom - top));
    }
  });
}

export function drawColumns(context, place, span, data, theme) {
  const y = yOf(place, span);
  const wide = Math.max(1, Math.min(14, place.per * 0.7));
  context.fillStyle = theme.soft;
  eachColumn(place, (x, first, behind) => {
    const most = extremes([data.volume], first, behind)[1];
    if (most > 0 && most < Infinity) context.fillRect(x - wide / 2, y(most), wide, Math.max(0, place.top + place.height - y(most)));
  });
}

export function drawLine(context, place, span, values, colour) {
  const y = yOf(place, span);
  context.strokeStyle = colour;
  context.lineWidth = 1.4;
  context.beginPath();
  let pen = false;
  eachColumn(place, (x, first, behind) => {
    const [least, most] = behind - first > 1 ? extremes([values], first, behind) : [values[first], values[first]];
    if (!(most >= least) || !Number.isFinite(least)) { pen = false; return; }
    if (pen) context.lineTo(x, y(most));
    else context.moveTo(x, y(most));
    if (least !== most) context.lineTo(x, y(least));
    pen = true;
  });
  context.stroke();
}

/** Bars at which a condition is true. */
export function drawSignals(context, place, list, theme) {
  context.fillStyle = theme.accent;
  for (const { values } of list) {
    eachColumn(place, (x, first, behind) => {
      if (extremes([values], first, behind)[1] !== 1) return;
      const wide = Math.max(1, place.per);
      context.fillRect(x - wide / 2, place.top + 11, wide, place.height - 9);
    });
  }
}

/** The numbers at the right, on round values. */
export function drawScale(context, place, [least, most], theme, panel, width) {
  if (panel.kind === "signal") return;
  const wanted = Math.max(1, Math.floor(place.height / 40));
  const raw = (most - least) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw) ?? raw;
  const y = yOf(place, [least, most]);
  const digits = Math.max(0, Math.min(8, -Math.floor(Math.log10(step) + 1e-9) + (step / power === 2.5 ? 1 : 0)));
  for (let at = Math.ceil(least / step) * step, n = 0; at <= most && n < 20; at += step, n += 1) {
    context.fillStyle = theme.line;
    context.fillRect(0, Math.round(y(at)), place.width, 0.5);
    context.fillStyle = theme.text;
    context.fillText(short(at, digits), place.width + 6, Math.min(place.top + place.height, y(at) + 4), width - place.width - 8);
  }
}
function short(x, digits) {
  const size = Math.abs(x);
  if (size >= 1e9) return `${(x / 1e9).toPrecision(3)}G`;
  if (size >= 1e6) return `${(x / 1e6).toPrecision(3)}M`;
  return size >= 1e5 ? `${Math.round(x / 1e3)}k` : x.toFixed(digits);
}

/** The times below the panels. */
export function drawTimes(context, room, top, times, theme) {
  const step = Math.max(1, Math.ceil(130 / room.per));
  context.fillStyle = theme.text;
  for (let i = Math.ceil(room.from / step) * step; i < room.to; i += step) {
    const x = (i + 0.5 - room.from) * room.per;
    const text = times[i]?.length > 10 ? times[i].slice(0, 16).replace("T", " ") : times[i] ?? "";
    if (x + context.measureText(text).width < room.width) context.fillText(text, x, top + 16);
  }
}
