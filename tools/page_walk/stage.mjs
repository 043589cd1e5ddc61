// What the walk runs on: `trawl serve` or a cluster, a proxy that loses, delays and invents replies, a browser.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";
import net from "node:net";
import path from "node:path";

/** How long a process may take until it is ready, on a machine that has much to do. */
const READY_MS = 60_000;
/** How long the browser waits for what is expected. */
export const WAIT_MS = 30_000;

const require = createRequire(path.join(process.env.TRAWL_NODE_MODULES, "package.json"));
export const { chromium } = require("playwright-core");
export const axePath = require.resolve("axe-core/axe.min.js");

/** Starts a server of Trawl and waits for its line `ready ...`; gives its fields. */
export async function started(trawl, args, env = {}) {
  const child = spawn(trawl, args, { stdio: ["pipe", "pipe", "pipe"], env: { ...process.env, ...env } });
  let said = "";
  child.stderr.on("data", (part) => { said = (said + part).slice(-4000); });
  const fields = await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${args[0]} was not ready: ${said}`)), READY_MS);
    let out = "";
    child.stdout.on("data", (part) => {
      out += part;
      const line = out.split("\n").find((candidate) => candidate.startsWith("ready "));
      if (!line) return;
      clearTimeout(timer);
      resolve(Object.fromEntries(line.split(" ").filter((word) => word.includes("=")).map((word) => [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)])));
    });
    child.on("exit", (code) => { clearTimeout(timer); reject(new Error(`${args[0]} exited with ${code}: ${said}`)); });
  });
  const stop = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGTERM");
    await Promise.race([once(child, "exit"), new Promise((resolve) => setTimeout(resolve, 15_000))]);
    child.kill("SIGKILL");
  };
  return { ...fields, child, stop };
}

/** `trawl serve`, or the server that TRAWL_PAGE_SERVER names. */
export async function serve(trawl, ...more) {
  const running = process.env.TRAWL_PAGE_SERVER;
  if (running) return { url: running, stop: async () => {} };
  return started(trawl, ["serve", "--listen", "127.0.0.1:0", "--until-stdin-ends", ...more]);
}

/** A free port of this machine. */
export async function freePort() {
  const probe = net.createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address();
  probe.close();
  await once(probe, "close");
  return port;
}

const TYPES = { html: "text/html", css: "text/css", js: "text/javascript", svg: "image/svg+xml" };

/** A file of the folder TRAWL_PAGE_FILES, in place of the one in the executable: for work on the page without building. */
function ownFile(url) {
  const folder = process.env.TRAWL_PAGE_FILES;
  const name = url === "/" ? "index.html" : url.slice(1);
  if (!folder || !/^[a-z]+\.[a-z]+$/.test(name)) return null;
  const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
  return { type: `${TYPES[name.split(".")[1]]}; charset=utf-8`, bytes: readFileSync(path.join(folder, name)), policy };
}

/**
 * A proxy in front of a server. `faults`: `lost` (connections are cut), `delayMs`, `held` (`{part, ms}`: only
 * requests whose address has this part are delayed). `invent(method, path, body, real)` gives a reply in place
 * of the server's, `{status, json}`; `real()` asks the server. What it does not invent is passed on as it is.
 */
export async function createProxy(upstream, invent = () => null) {
  const target = new URL(upstream);
  const faults = { lost: false, delayMs: 0, held: null };
  const requests = [];
  const sockets = new Set();
  const server = http.createServer(async (request, response) => {
    if (faults.lost) { request.socket.destroy(); return; }
    requests.push(`${request.method} ${request.url}`);
    const own = ownFile(request.url);
    if (own) {
      response.writeHead(200, { "Content-Type": own.type, "Content-Security-Policy": own.policy });
      response.end(own.bytes);
      return;
    }
    const parts = [];
    for await (const part of request) parts.push(part);
    const body = Buffer.concat(parts);
    if (faults.delayMs > 0) await new Promise((resolve) => setTimeout(resolve, faults.delayMs));
    if (faults.held && request.url.includes(faults.held.part)) await new Promise((resolve) => setTimeout(resolve, faults.held.ms));
    const headers = { ...request.headers, host: target.host };
    if (headers.origin) headers.origin = target.origin;
    const ask = () => new Promise((resolve, reject) => {
      const upstreamRequest = http.request({ host: target.hostname, port: target.port, method: request.method, path: request.url, headers }, resolve);
      upstreamRequest.on("error", reject);
      response.on("close", () => upstreamRequest.destroy());
      upstreamRequest.end(body);
    });
    const real = async () => {
      const reply = await ask();
      const read = [];
      for await (const part of reply) read.push(part);
      return JSON.parse(Buffer.concat(read).toString());
    };
    try {
      const invented = await invent(request.method, request.url, body, real);
      if (invented) {
        response.writeHead(invented.status ?? 200, { "Content-Type": "application/json", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store" });
        response.end(JSON.stringify(invented.json));
        return;
      }
      const reply = await ask();
      response.writeHead(reply.statusCode, reply.headers);
      reply.pipe(response);
      reply.on("error", () => response.destroy());
    } catch {
      response.destroy();
    }
  });
  server.on("connection", (socket) => { sockets.add(socket); socket.on("close", () => sockets.delete(socket)); });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const lose = () => { faults.lost = true; for (const socket of sockets) socket.destroy(); };
  return {
    url: `http://127.0.0.1:${server.address().port}/`, faults, requests, lose,
    find: () => { faults.lost = false; },
    /** Another server, at the same address. */
    setUpstream: (url) => { target.href = url; },
    stop: () => { for (const socket of sockets) socket.destroy(); server.close(); },
  };
}

/** A browser. Errors of its pages are collected: there must be none. */
export async function createBrowser(executable) {
  const browser = await chromium.launch({ executablePath: executable, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--js-flags=--expose-gc"] });
  const errors = [];
  const page = async (url, options = {}) => {
    const context = await browser.newContext({ viewport: { width: 1360, height: 900 }, ...options });
    const opened = await context.newPage();
    opened.setDefaultTimeout(WAIT_MS);
    opened.on("pageerror", (error) => errors.push(`${error.message} ${error.stack ?? ""}`));
    opened.on("console", (message) => {
      const expected = /net::ERR_|status of (4|5)\d\d/.test(message.text());
      if (message.type() === "error" && !expected) errors.push(message.text());
    });
    opened.on("dialog", (dialog) => { errors.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
    await opened.goto(url);
    return opened;
  };
  return { browser, errors, page, stop: () => browser.close() };
}

/** The checks of a walk, printed as they are made. */
export function createChecks() {
  const failures = [];
  let passed = 0;
  return {
    failures,
    check(what, holds, more = "") {
      if (holds) { passed += 1; console.log(`  ok    ${what}${more ? `: ${more}` : ""}`); } else {
        failures.push(what);
        console.log(`  FAILED ${what}${more ? `: ${more}` : ""}`);
      }
    },
    end() {
      console.log(`${passed} passed, ${failures.length} failed`);
      return failures.length === 0;
    },
  };
}
