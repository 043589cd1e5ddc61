// Answers that no small dataset gives: 10,000 rows, none, only failures, names that attack the page. The proxy gives them in place of the
// server's, in the shapes that the server has.

export const SCRIPT = "<script>document.title='taken'</script>";
export const IMAGE = "<img src=x onerror=\"document.title='taken'\">";
export const RTL = "\u202Eשלום עולם <b>";
export const LONG = `LONG${"W".repeat(180)}`;

const line = (scan, condition, more = {}) => ({
  scan, state: "done", owner: SCRIPT, durable: false, generation: 1, priority: "normal", submitted: new Date(Date.now() - 60_000).toISOString(), dataset: `${SCRIPT}@0123456789abcdef`,
  condition, step: 1, segments: 4, segments_ended: 4, answer_digest: "0".repeat(64), ...more,
});

/** Scans that the list has beside those of the server. */
export const SCANS = [
  line("invented-many", "ten thousand rows", { submitted: "2024-01-05T00:00:00Z" }), line("invented-none", "no rows", { submitted: "2024-01-04T00:00:00Z" }),
  line("invented-failed", "all failed", { submitted: "2024-01-03T00:00:00Z" }), line("invented-names", IMAGE, { submitted: "2024-01-02T00:00:00Z" }),
  line("invented-ended", RTL, { state: "failed", failure: { kind: "damaged", message: `segment 3: ${SCRIPT}` }, submitted: "2024-01-01T00:00:00Z" }),
];

function answer(rows, select = []) {
  const counts = { failed: 0, stale: 0, outside: 0, unknown: 0, matched: 0, not_matched: 0, symbols: rows.length };
  for (const row of rows) counts[row.status] += 1;
  return {
    identity: { plan: "0".repeat(64), dataset: "demo", snapshot: "05b9eb100cbb7798c16ee345a12368b01128929c240207ac4528052457079fba", as_of: "2024-12-06", engine: "trawl", numerics: "n6", backend: "cpu", precision: "f64", adjustment: "none" },
    answer_digest: "0".repeat(64), scan: { dataset: "demo", where: "close > 0", select }, counts, text_columns: ["sector"], rows,
  };
}

const STATUSES = ["matched", "matched", "not_matched", "unknown", "stale"];
const row = (symbol, status, more = {}) => ({
  time: "2024-12-06", place: null, symbol, status, edge: false, provisional: false, reason: status === "unknown" ? "too short: 162 bars, 200 needed" : "", ...more,
});

/** So many rows with numbers that are not in order. */
export function many(count) {
  const rows = [];
  let seed = 42;
  for (let i = 0; i < count; i += 1) {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    const status = STATUSES[seed % STATUSES.length];
    const matched = status === "matched";
    rows.push(row(`S${String(i).padStart(5, "0")}`, status, {
      place: matched ? i + 1 : null, close: matched ? (seed % 100_000) / 100 : null, rsi: matched ? (seed % 10_007) / 100 : null, momentum: matched ? ((seed % 2001) - 1000) / 10 : null,
      sector: ["Energy", "Technology", "Health", "Financials"][seed % 4],
    }));
  }
  return answer(rows, ["close", "rsi(14) as rsi", "roc(20) as momentum", "sector"]);
}

const ANSWERS = {
  "invented-many": () => many(10_000),
  "invented-none": () => answer([]),
  "invented-failed": () => answer([1, 2, 3].map((n) => row(`BAD${n}`, "failed", { reason: `the bars are damaged: ${SCRIPT}`, sector: null }))),
  "invented-names": () => answer([SCRIPT, IMAGE, RTL, LONG].map((symbol, i) => row(symbol, "matched", { place: i + 1, close: i, sector: IMAGE }))),
};

/** Name of a symbol with so many minutes. */
export const MINUTES = "HUNDREDK";
const BARS = 100_000;

/** Columns along them, as `/v1/series` gives them. */
function minutes() {
  const [times, open, high, low, close, volume, mean, signal] = Array.from({ length: 8 }, () => []);
  let price = 100;
  let slow = 100;
  for (let i = 0; i < BARS; i += 1) {
    times.push(new Date(Date.UTC(2024, 0, 2) + i * 60_000).toISOString().replace(".000", ""));
    const begin = price;
    price *= 1 + Math.sin(i * 12.9898) * 0.002 + Math.sin(i / 4000) * 0.0002;
    slow += (price - slow) / 500;
    open.push(begin); close.push(price); high.push(Math.max(begin, price) * 1.0005); low.push(Math.min(begin, price) * 0.9995);
    volume.push(1000 + (i % 390) * 10); mean.push(i < 500 ? null : slow); signal.push(price > slow);
  }
  return { dataset: "demo@05b9eb10", symbol: MINUTES, times, columns: { open, high, low, close, volume, mean, signal } };
}

/** Replies in place of the server's. */
export async function invent(method, url, body, real) {
  const { pathname } = new URL(url, "http://proxy");
  if (method === "GET" && pathname === "/v1/scans") {
    const { scans = [] } = await real();
    return { json: { scans: [...scans, ...SCANS] } };
  }
  if (method === "GET" && pathname === "/v1/datasets") {
    const all = await real();
    return { json: [...all, { ...all[0], name: SCRIPT, problem: IMAGE }, { ...all[0], name: RTL }, { ...all[0], name: LONG }] };
  }
  if (method === "GET" && pathname === "/v1/workers") {
    const worker = { state: "serving", address: "10.0.0.1:7402", threads: 8, shards_in_flight: 3, class: "cpu", boot: "b", loads: { memory: 90, disk: 8, data_root: 2, fetch_s: 1.5, wait_s: 0.2 } };
    return { json: { workers: [{ ...worker, worker: "w1" }, { ...worker, worker: SCRIPT }, { ...worker, worker: LONG, state: "draining" }] } };
  }
  if (method === "POST" && pathname === "/v1/series" && JSON.parse(body.toString()).symbol === MINUTES) return { json: minutes() };
  const found = /^\/v1\/scans\/(invented-[a-z]+)\/answer$/.exec(pathname);
  if (method === "GET" && found && ANSWERS[found[1]]) return { json: ANSWERS[found[1]]() };
  return null;
}
