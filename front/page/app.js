// The frame: which view is shown, the banner of the connection, colours, keys, the token.

import { connection, get, retry, token } from "./api.js";
import { fill, h, say } from "./dom.js";
import { parsed } from "./link.js";

const main = document.getElementById("main");
const banner = document.getElementById("banner");
const dialog = document.getElementById("dialog");
const THEMES = ["auto", "light", "dark"];
const THEME_KEY = "trawl.theme";

// Views are loaded when they are first shown.
const LOADERS = {
  scan: () => import("./scan.js"),
  symbol: () => import("./symbol.js"),
  cluster: () => import("./cluster.js"),
};
const views = new Map();
let shown = null;

async function route() {
  const { view, payload } = parsed(location.hash);
  const wanted = view in LOADERS ? view : "scan";
  let made = views.get(wanted);
  if (!made) {
    try {
      made = (await LOADERS[wanted]()).create();
    } catch {
      fill(main, h("p", { class: "problem" }, "This view could not be loaded. ", h("button", { type: "button", onclick: route }, "Try again")));
      return;
    }
    views.set(wanted, made);
  }
  // The address may have changed while the module was loaded.
  if (parsed(location.hash).view !== view) return;
  if (shown !== made) {
    shown?.hide();
    shown = made;
    fill(main, made.element);
    for (const link of document.querySelectorAll("nav a")) {
      if (link.dataset.view === wanted) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = `${wanted[0].toUpperCase()}${wanted.slice(1)} · Trawl`;
  }
  made.show(payload);
}

// The banner

let ticking = 0;
function showConnection() {
  clearTimeout(ticking);
  const { state, slow, retryAt } = connection;
  if (state === "lost") {
    const seconds = Math.max(0, Math.ceil((retryAt - Date.now()) / 1000));
    const words = seconds > 0 ? `The server cannot be reached. Next attempt in ${seconds} s.` : "The server cannot be reached. Asking again.";
    if (banner.hidden || !banner.firstChild?.classList?.contains("lost")) {
      fill(banner, h("span", { class: "lost" }), h("button", { type: "button", onclick: retry }, "Ask now"));
      // Announced once; the countdown is not.
      say("The server cannot be reached. This page asks again by itself.");
    }
    banner.firstChild.textContent = words;
    banner.setAttribute("aria-live", "off");
    banner.className = "banner bad";
    banner.hidden = false;
    ticking = setTimeout(showConnection, 500);
  } else if (slow > 0) {
    fill(banner, "The server is slow: a request has been waiting for more than 3 s.");
    banner.setAttribute("aria-live", "polite");
    banner.className = "banner";
    banner.hidden = false;
  } else {
    banner.hidden = true;
    fill(banner);
  }
}
connection.addEventListener("change", showConnection);
connection.addEventListener("back", () => { say("The server is there again."); showServer(); });

async function showServer() {
  try {
    const { version, mode, numerics } = await get("v1/version");
    fill(document.getElementById("server"), `${mode} ${version}`, h("span", { class: "wide" }, ` · numerics ${numerics}`));
  } catch { /* the banner says so */ }
}

// Colours

function setTheme(theme) {
  const root = document.documentElement;
  if (theme === "auto") delete root.dataset.theme;
  else root.dataset.theme = theme;
  localStorage.setItem(THEME_KEY, theme);
  const button = document.getElementById("theme");
  button.textContent = { auto: "Auto", light: "Light", dark: "Dark" }[theme];
  button.setAttribute("aria-label", `${button.textContent}: colours ${theme === "auto" ? "as the system has them" : "of this page"}`);
  dispatchEvent(new Event("trawl-theme"));
}
function nextTheme() {
  const present = document.documentElement.dataset.theme ?? "auto";
  setTheme(THEMES[(THEMES.indexOf(present) + 1) % THEMES.length]);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("trawl-theme")));

// Dialogs

function open(title, ...content) {
  const close = h("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Close");
  fill(dialog, h("div", { class: "dialog-head" }, h("h2", { id: "dialog-title" }, title), close), content);
  if (!dialog.open) dialog.showModal();
}

const KEYS = [
  ["1, 2, 3", "scan, symbol, cluster"], ["?", "these keys"], ["t", "colours: as the system, light, dark"],
  ["e", "to the editor"], ["/", "to the filter of the answer"], ["Ctrl+Enter", "run the scan"], ["Ctrl+Space", "complete a word"],
  ["Ctrl+.", "apply the first suggestion"], ["Escape, Tab", "leave the editor: Escape, then Tab"],
  ["↑ ↓ Page Home End", "rows of an answer"], ["Enter", "open the row's symbol"], ["n, p", "next and previous symbol of the answer"],
  ["← →", "on a chart: the bar before and after; with Shift: move by a screen's tenth"], ["+ −", "on a chart: zoom"],
  ["Home End", "on a chart: first and last bars"], ["0", "on a chart: all bars"],
];
function showKeys() {
  open("Keys", h("dl", { class: "keys" }, KEYS.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])));
}

function askToken(why = "") {
  const input = h("input", { type: "password", id: "token-input", autocomplete: "off", spellcheck: "false", value: token.get() });
  const save = (event) => {
    event.preventDefault();
    token.set(input.value.trim());
    dialog.close();
    showToken();
    shown?.refresh?.();
    showServer();
  };
  open("Token", h("form", { onsubmit: save },
    why && h("p", { class: "problem" }, why),
    h("label", { for: "token-input" }, "Bearer token"), input,
    h("p", { class: "hint" }, "It is kept for this tab until it is closed, and sent in a header, never in an address."),
    h("p", {}, h("button", { type: "submit", class: "main" }, "Use it"), " ",
      h("button", { type: "button", onclick: () => { input.value = ""; input.form.requestSubmit(); } }, "Forget it"))));
  input.focus();
}
function showToken() {
  document.getElementById("token").textContent = token.get() ? "Token ✓" : "Token";
}
connection.addEventListener("unauthenticated", () => {
  if (!dialog.open) askToken(token.get() ? "The server does not accept this token." : "The server asks for a token.");
});

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (typing) return;
  const view = { 1: "scan", 2: "symbol", 3: "cluster" }[event.key];
  if (view) location.hash = `#/${view}`;
  else if (event.key === "?") showKeys();
  else if (event.key === "t") nextTheme();
  else if (!shown?.key?.(event)) return;
  event.preventDefault();
});

document.getElementById("keys").addEventListener("click", showKeys);
document.getElementById("theme").addEventListener("click", nextTheme);
document.getElementById("token").addEventListener("click", () => askToken());
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
addEventListener("hashchange", route);

setTheme(THEMES.includes(localStorage.getItem(THEME_KEY)) ? localStorage.getItem(THEME_KEY) : "auto");
showToken();
route();
showServer();
