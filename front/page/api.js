// Requests to the server that gave this page, and what is known of the connection.
//
// The token is sent in a header and kept for this tab; it is never in an address. A server that cannot be reached is asked again
// with growing pauses, by one loop for the whole page, and everybody who waits goes on when it answers.

const TOKEN_KEY = "trawl.token";
/** Pauses between attempts to reach a lost server, in milliseconds; the last one repeats. */
const RETRY_MS = [1000, 2000, 4000, 8000, 15_000];
/** An attempt to reach a lost server is given up after this time. */
const RETRY_TIMEOUT_MS = 10_000;
/** A request that is not answered by then is reported as slow. */
const SLOW_MS = 3000;
/** A request is given up after this time. */
const TIMEOUT_MS = 90_000;
/** Largest answer that this page reads, in bytes; larger ones can be downloaded. */
export const ANSWER_BYTES_MAX = 96 << 20;
/** Longest line of a stream of events, in characters. */
const EVENT_CHARACTERS_MAX = 1 << 20;

/** What the server refused, with the fields of its error. */
export class Problem extends Error {
  constructor(error, status = 0) {
    super(error.message ?? "the server gave no reason");
    Object.assign(this, { kind: error.kind ?? "internal", help: error.help ?? null, mistakes: error.mistakes ?? [], status });
    this.retryAfterMs = (error.retry_after_s ?? 1) * 1000;
  }
}

/** Events `change` (see `state`), `back`, `unauthenticated`. */
export const connection = Object.assign(new EventTarget(), { state: "open", slow: 0, retryAt: 0, attempt: 0 });

const changed = () => connection.dispatchEvent(new Event("change"));

export const token = {
  get: () => sessionStorage.getItem(TOKEN_KEY) ?? "",
  set: (text) => (text ? sessionStorage.setItem(TOKEN_KEY, text) : sessionStorage.removeItem(TOKEN_KEY)),
};

function headers(more = {}) {
  const all = { Accept: "application/json", ...more };
  if (token.get()) all.Authorization = `Bearer ${token.get()}`;
  return all;
}

let retryTimer = 0;

/** Notes that the server was not reached, and begins to ask for it. */
function lost() {
  if (connection.state === "lost") return;
  connection.state = "lost";
  connection.attempt = 0;
  plan();
}

function plan() {
  const pause = RETRY_MS[Math.min(connection.attempt, RETRY_MS.length - 1)];
  connection.retryAt = Date.now() + pause;
  clearTimeout(retryTimer);
  retryTimer = setTimeout(retry, pause);
  changed();
}

/** Asks whether the server is there again, now. */
export async function retry() {
  clearTimeout(retryTimer);
  if (connection.state !== "lost") return;
  connection.attempt += 1;
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(), RETRY_TIMEOUT_MS);
  try {
    const reply = await fetch("v1/version", { headers: headers(), cache: "no-store", signal: controller.signal });
    if (!reply.ok) throw new TypeError("not there");
    connection.state = "open";
    changed();
    connection.dispatchEvent(new Event("back"));
  } catch {
    plan();
  } finally {
    clearTimeout(timer);
  }
}

/** Resolves once the server answers, or rejects if `signal` is aborted. */
export function reachable(signal) {
  return new Promise((resolve, reject) => {
    if (connection.state === "open") return resolve();
    const stop = () => reject(signal.reason);
    signal?.addEventListener("abort", stop, { once: true });
    const back = () => { signal?.removeEventListener("abort", stop); resolve(); };
    connection.addEventListener("back", back, { once: true, signal });
  });
}

/**
 * Sends a request and gives what `read` makes of the reply; `signal` and the time limit hold until that is done. With a controller and a
 * timer of its own, which are given up with the request: browsers keep signals of `AbortSignal.timeout` and `any` for longer, and a page that is left
 * open grows by each of them.
 */
async function request(method, path, { body, signal, accept, key, timeoutMs = TIMEOUT_MS, keep = false }, read) {
  if (signal?.aborted) throw signal.reason;
  const sent = headers(accept ? { Accept: accept } : {});
  if (body !== undefined) sent["Content-Type"] = "application/json";
  if (key) sent["Idempotency-Key"] = key;
  const controller = new AbortController();
  const stop = () => controller.abort(signal.reason);
  signal?.addEventListener("abort", stop, { once: true });
  const timer = keep ? 0 : setTimeout(() => controller.abort(new DOMException("no reply in time", "TimeoutError")), timeoutMs);
  try {
    return await read(await checked(await sentOff(method, path, { headers: sent, body, signal, within: controller.signal })));
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
  }
}

/** The reply, as soon as its head is there. */
async function sentOff(method, path, { headers: sent, body, signal, within }) {
  let slow = false;
  const watch = setTimeout(() => { slow = true; connection.slow += 1; changed(); }, SLOW_MS);
  try {
    return await fetch(path, {
      method, headers: sent, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store", signal: within, redirect: "error", credentials: "same-origin",
    });
  } catch {
    if (signal?.aborted) throw signal.reason;
    lost();
    throw new Problem({ kind: "unavailable", message: "the server cannot be reached" });
  } finally {
    clearTimeout(watch);
    if (slow) { connection.slow -= 1; changed(); }
  }
}

async function checked(reply) {
  if (reply.ok) return reply;
  let error = null;
  try { error = (await reply.json()).error; } catch { /* a proxy's page */ }
  const problem = new Problem(error ?? { kind: "internal", message: `the server replied ${reply.status}` }, reply.status);
  if (reply.status === 401) connection.dispatchEvent(new Event("unauthenticated"));
  throw problem;
}

/** Sends a request and reads its JSON. */
export function call(method, path, options = {}) {
  return request(method, path, options, async (reply) => {
    try {
      return await reply.json();
    } catch (error) {
      if (options.signal?.aborted) throw options.signal.reason;
      if (error instanceof SyntaxError) throw new Problem({ message: "the reply is no JSON" });
      lost();
      throw new Problem({ kind: "unavailable", message: "the connection ended within a reply" });
    }
  });
}

export const get = (path, options) => call("GET", path, options);
export const post = (path, body, options) => call("POST", path, { ...options, body });

export const scanPath = (scan, rest = "") => `v1/scans/${encodeURIComponent(scan)}${rest}`;

/** An answer as JSON, unless it is too large to be shown. */
export function answer(scan, options = {}) {
  return request("GET", scanPath(scan, "/answer?format=json"), options, async (reply) => {
    const parts = [];
    let size = 0;
    const reader = reply.body.getReader();
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        size += value.length;
        if (size > ANSWER_BYTES_MAX) {
          await reader.cancel();
          throw new Problem({ kind: "too_large", message: "the answer is too large for this page", help: "download it instead" });
        }
        parts.push(value);
      }
    } catch (error) {
      if (error instanceof Problem || options.signal?.aborted) throw error;
      lost();
      throw new Problem({ kind: "unavailable", message: "the connection ended within the answer" });
    }
    return JSON.parse(await new Blob(parts).text());
  });
}

/** A file of the server, for a link that cannot carry the token. */
export function blob(path) {
  return request("GET", path, { accept: "*/*" }, (reply) => reply.blob());
}

/**
 * Follows the events of a scan until it has ended: `seen(event, data)`. Comes back by itself after a lost connection.
 * EventSource is not used because it cannot send a header.
 */
export async function follow(scan, seen, signal) {
  for (;;) {
    await reachable(signal);
    try {
      const options = { signal, accept: "text/event-stream", keep: true };
      if (await request("GET", scanPath(scan, "/events"), options, (reply) => readEvents(reply.body, seen))) return;
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      if (error instanceof Problem && error.status !== 0 && !["unavailable", "too_many"].includes(error.kind)) throw error;
    }
    // The stream ended without an end of the scan: the server goes away, or a proxy closed it.
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS[0]));
  }
}

/** Reads a stream of events; true once the scan has ended. */
async function readEvents(body, seen) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return false;
    rest += value;
    if (rest.length > EVENT_CHARACTERS_MAX) throw new Problem({ message: "an event is too long" });
    let end;
    while ((end = rest.indexOf("\n\n")) >= 0) {
      const lines = rest.slice(0, end).split("\n");
      rest = rest.slice(end + 2);
      const field = (name) => lines.find((line) => line.startsWith(name))?.slice(name.length) ?? "";
      const event = field("event: ");
      if (!event) continue;
      seen(event, JSON.parse(field("data: ") || "null"));
      if (event === "ended") { await reader.cancel(); return true; }
      if (event === "refused") { await reader.cancel(); return false; }
    }
  }
}
