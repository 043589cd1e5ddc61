// What the views share: the answer that was looked at last, so that a symbol is shown with the scan's own series.

export const shared = {
  /** `{scan, answer, timeframe}` of the answer in view. */
  answer: null,
  /** Its rows in the order in which they are shown. */
  rows: [],
  linkOf,
};

/** Most expressions that a symbol's page asks for. */
const EXPRESSIONS_MAX = 24;

/** What the symbol's page needs for a row: everything in the address, so that it can be sent to somebody. */
function linkOf(row, { answer }) {
  const { identity, scan } = answer;
  // One of several scans in one document: its own condition and words.
  const own = (scan.scan ?? []).find((part) => part.name === row.scan) ?? {};
  const names = Object.keys(row).slice(0, Object.keys(row).indexOf("place"));
  const point = Object.fromEntries(names.filter((key) => key in (scan.sweep ?? {})).map((key) => [key, String(row[key])]));
  const document = { ...scan, ...(own.where ? { where: own.where, universe: own.universe ?? scan.universe } : {}) };
  for (const key of ["scan", "sweep", "sweep_where", "best", "name"]) delete document[key];
  const lets = { ...(scan.let ?? {}), ...(own.let ?? {}), ...point };
  if (Object.keys(lets).length > 0) document.let = lets;
  const select = (scan.select ?? []).slice(0, EXPRESSIONS_MAX);
  return {
    dataset: `${identity.dataset}@${identity.snapshot}`, symbol: row.symbol, as_of: identity.as_of,
    exprs: select, where: document.where, let: document.let, def: scan.def, adjust: scan.adjust,
    precision: scan.precision, timeframe: scan.timeframe, history: scan.history,
    document: { ...document, dataset: `${identity.dataset}@${identity.snapshot}` },
  };
}
