// What the editor completes: functions, columns, labels, datasets, symbols. Each list is asked for once.

import { get } from "./api.js";
import { KEYS, datasetOf, ownNames } from "./language.js";

const COLUMNS = ["open", "high", "low", "close", "volume"];
/** Words of the calendar and of symbols: docs/language/expressions.md. */
const CALENDAR = ["symbol", "time_of_day", "weekday", "month"];
/** Datasets whose symbols are kept. */
const DATASETS_MAX = 8;

let functions = [];
let datasets = [];
const details = new Map();

/** Asks for functions and datasets; what cannot be had is missing from the completions, and nothing else. */
export async function load() {
  const [entries, found] = await Promise.allSettled([functions.length ? functions : get("v1/indicators"), get("v1/datasets")]);
  if (entries.status === "fulfilled" && functions.length === 0) {
    functions = entries.value.flatMap?.((entry) => entry.name ? [{
      text: entry.name, insert: `${entry.name}(`, what: "function", more: entry.summary, call: entry.call,
    }] : entry) ?? [];
  }
  if (found.status === "fulfilled") datasets = Array.isArray(found.value) ? found.value : [];
  return datasets;
}

/** Asks for the columns, labels and symbols of a dataset. */
export async function loadDataset(reference) {
  if (!reference || details.has(reference)) return details.get(reference);
  const wanted = get(`v1/datasets/${encodeURIComponent(reference)}?all=true`).catch(() => null);
  details.set(reference, wanted);
  if (details.size > DATASETS_MAX) details.delete(details.keys().next().value);
  const found = await wanted;
  if (found) details.set(reference, found);
  else details.delete(reference);
  return found;
}

/** Completions for a place of a document. */
export function complete(context, text) {
  const reference = datasetOf(text);
  const dataset = details.get(reference);
  const known = dataset && !(dataset instanceof Promise) ? dataset : {};
  switch (context.where) {
    case "key":
      return KEYS.map((key) => ({ text: key, insert: key.startsWith("[") ? key : `${key} = `, what: "clause" }));
    case "dataset":
      return datasets.map((entry) => ({ text: entry.name, what: "dataset", more: `${entry.symbols} symbols, ${entry.timeframe}` }));
    case "string":
      return (known.entries ?? []).map((entry) => ({ text: entry.symbol, what: "symbol" }));
    default: {
      const columns = (known.columns ?? COLUMNS).map((column) => ({ text: column, what: "column" }));
      const labels = [...(known.labels ?? []), ...(known.attributes ?? [])].map((label) => ({ text: label, what: "label" }));
      const calendar = CALENDAR.map((word) => ({ text: word, what: "word" }));
      const own = ownNames(text).map(({ text: name, what, call }) => ({ text: name, insert: call ? `${name}(` : name, what }));
      return [...own, ...columns, ...labels, ...functions, ...calendar];
    }
  }
}

/** The call of a function with its defaults, such as `rsi(real=close, timeperiod=14)`. */
export const callOf = (word) => functions.find((entry) => entry.text === word);
