// Days of a dataset as squares, a year a row of weeks: how many of the symbols have bars.

import { colours } from "./colours.js";
import { count, grouped, h, instant } from "./dom.js";

/** Years that are drawn, the newest. */
const YEARS_MAX = 40;
const CELL = 11;
const DAY_US = 86_400_000_000;
/** Days with fewer symbols than this share of those expected are listed. */
const THIN = 0.95;
const LISTED = 12;

/** The coverage of `{date, symbols, expected, bars}`, oldest first. */
export function coverage(days) {
  if (days.length === 0) return h("p", { class: "hint" }, "There are no bars.");
  const years = new Map();
  for (const day of days) {
    const year = new Date(day.date / 1000).getUTCFullYear();
    if (!years.has(year)) years.set(year, []);
    years.get(year).push(day);
  }
  const drawn = [...years].slice(-YEARS_MAX).reverse();
  const thin = days.filter((day) => shareOf(day) < THIN);
  return [
    h("p", {}, `${count(days.length, "day")} from ${instant(days[0].date)} to ${instant(days[days.length - 1].date)}, ${grouped(days.reduce((sum, day) => sum + day.bars, 0))} bars. `,
      thin.length === 0 ? "Every day has its symbols." : `${count(thin.length, "day")} with fewer than ${THIN * 100} % of the symbols:`),
    thin.length > 0 && h("ul", { class: "thin" }, thin.slice(-LISTED).reverse().map((day) => h("li", {}, `${instant(day.date)}: ${grouped(day.symbols)} of ${count(day.expected, "symbol")}, ${count(day.bars, "bar")}`)),
      thin.length > LISTED && h("li", {}, `and ${grouped(thin.length - LISTED)} before`)),
    h("div", { class: "years", tabindex: 0, role: "region", "aria-label": "Years" }, drawn.map(([year, list]) => yearOf(year, list))),
    years.size > drawn.length && h("p", { class: "hint" }, `${grouped(years.size - drawn.length)} earlier years are not drawn.`),
    h("p", { class: "hint" }, "One square a day, one column a week; darker is a larger share of the symbols that have bars before and after it."),
  ];
}

const shareOf = (day) => (day.expected > 0 ? day.symbols / day.expected : 1);

function yearOf(year, days) {
  const ratio = devicePixelRatio || 1;
  const weekdayOf = (day) => (new Date(day.date / 1000).getUTCDay() + 6) % 7;
  const [width, height] = [54 * CELL, (days.some((day) => weekdayOf(day) > 4) ? 7 : 5) * CELL];
  const thin = days.filter((day) => shareOf(day) < THIN).length;
  const canvas = h("canvas", {
    width: width * ratio, height: height * ratio, role: "img",
    "aria-label": `${year}: ${count(days.length, "day")} with bars, ${thin} of them with missing symbols`,
  });
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const first = Date.UTC(year, 0, 1) * 1000;
  const firstWeekday = (new Date(first / 1000).getUTCDay() + 6) % 7;
  const placeOf = (day) => {
    const n = Math.round((day.date - first) / DAY_US) + firstWeekday;
    return [Math.floor(n / 7) * CELL, (n % 7) * CELL];
  };
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const paint = () => {
    const theme = colours();
    context.clearRect(0, 0, width, height);
    for (const day of days) {
      const [x, y] = placeOf(day);
      const share = shareOf(day);
      context.globalAlpha = share < THIN ? 1 : 0.35 + 0.65 * share ** 4;
      context.fillStyle = share < THIN ? theme.warn : theme.accent;
      context.fillRect(x, y, CELL - 2, CELL - 2);
    }
  };
  paint();
  canvas.addEventListener("pointermove", (event) => {
    const at = days.find((day) => {
      const [x, y] = placeOf(day);
      return event.offsetX >= x && event.offsetX < x + CELL && event.offsetY >= y && event.offsetY < y + CELL;
    });
    canvas.title = at ? `${instant(at.date)}: ${grouped(at.symbols)} of ${count(at.expected, "symbol")}, ${count(at.bars, "bar")}` : "";
  });
  return h("div", { class: "year" }, h("span", {}, year), canvas);
}
