// An answer: counts by status, the table, exports, the link that reproduces it.

import { ANSWER_BYTES_MAX, blob, connection, scanPath, token } from "./api.js";
import { bytes, count, debounced, fill, grouped, h, name, say, shortDataset } from "./dom.js";
import { address, pinned } from "./link.js";
import { createSparks } from "./sparks.js";
import { createTable } from "./table.js";

const STATUSES = ["matched", "not_matched", "unknown", "stale", "outside", "failed"];
const FORMATS = [["csv", "CSV", "csv"], ["json", "JSON", "json"], ["ndjson", "JSON lines", "ndjson"], ["arrow", "Arrow", "arrow"], ["parquet", "Parquet", "parquet"]];
/** Addresses of objects are given back after this time, when the download has begun. */
const OBJECT_MS = 30_000;

/** `openSymbol(row, list)` is called for a row. */
export function createResults({ openSymbol }) {
  let shown = null;
  const sparks = createSparks(() => shown ?? {}, () => table.sparksChanged());
  const table = createTable({ open: (row) => openSymbol(row, shown), drawSpark: sparks.draw });
  const filter = h("input", { type: "search", id: "filter", placeholder: "Filter: words, or rsi<30", autocomplete: "off", spellcheck: "false", "aria-label": "Filter the rows" });
  const filtered = h("span", { class: "quiet-text", id: "filtered" });
  const chips = h("div", { class: "chips", role: "group", "aria-label": "Show only a status" });
  const condition = h("p", { class: "condition asked" });
  const facts = h("p", { class: "facts-line" });
  const tools = h("div", { class: "exports" });
  const failed = h("div", {});
  const element = h("section", { class: "card results", "aria-labelledby": "results-title", hidden: true },
    h("div", { class: "card-head" }, h("h2", { id: "results-title" }, "Answer"), tools), condition, facts, failed,
    h("div", { class: "table-tools" }, chips, h("span", { class: "filter-box" }, filter, filtered)), table.element);
  connection.addEventListener("back", () => table.sparksChanged());
  filter.addEventListener("input", debounced(60, () => table.setFilter(filter.value)));
  filter.addEventListener("keydown", (event) => { if (event.key === "ArrowDown" || event.key === "Enter") { event.preventDefault(); table.focus(); } });
  table.grid.addEventListener("updated", ({ detail }) => {
    const more = detail.cut > 0 ? `; ${grouped(detail.cut)} more are not shown here, download the answer` : "";
    filtered.textContent = (detail.shown === detail.all ? count(detail.all, "row") : `${grouped(detail.shown)} of ${count(detail.all, "row")}`) + more;
  });

  function chip(status, n) {
    const button = h("button", { type: "button", class: `chip ${status}`, "aria-pressed": "false" }, `${status.replace("_", " ")} `, h("b", {}, grouped(n)));
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      for (const other of chips.children) other.setAttribute("aria-pressed", String(other === button && on));
      table.setStatuses(on ? new Set([status]) : null);
      say(on ? `Only ${status.replace("_", " ")}` : "Every status");
    });
    return button;
  }
  function exports(scan) {
    return FORMATS.map(([format, label, ending]) => {
      const path = scanPath(scan, `/answer?format=${format}`);
      const link = h("a", { href: path, download: `${scan}.${ending}` }, label);
      // A link cannot carry the token, and an address must not: the page fetches the file and gives it to the browser.
      link.addEventListener("click", async (event) => {
        if (!token.get()) return;
        event.preventDefault();
        try {
          const object = URL.createObjectURL(await blob(path));
          h("a", { href: object, download: `${scan}.${ending}` }).click();
          setTimeout(() => URL.revokeObjectURL(object), OBJECT_MS);
        } catch (problem) { say(`Not downloaded: ${problem.message}`); }
      });
      return link;
    });
  }
  function copyLink(text, identity) {
    const link = new URL(address("scan", { text: pinned(text, identity), as_of: identity.as_of }), location.href).href;
    const done = h("button", { type: "button", title: "The document, its as-of and the dataset's snapshot" }, "Copy link");
    done.dataset.link = link;
    done.addEventListener("click", async () => {
      // Without a clipboard, as over plain HTTP from another machine, the address bar has it.
      try { await navigator.clipboard.writeText(link); done.textContent = "Copied"; } catch { history.replaceState(null, "", link); done.textContent = "In the address"; }
      say("A link that reproduces this answer");
    });
    return done;
  }

  return {
    element, table,
    get answer() { return shown?.answer ?? null; },
    /** Shows an answer. `text` is the document, if it is known. */
    show(scan, answer, { text, timeframe }) {
      const { identity, counts, scan: said = {} } = answer;
      sparks.reset();
      shown = { scan, answer, text, dataset: `${identity.dataset}@${identity.snapshot}`, asOf: identity.as_of, timeframe, adjust: said.adjust };
      fill(chips, STATUSES.filter((status) => counts[status] > 0).map((status) => chip(status, counts[status])));
      fill(tools, exports(scan), text ? copyLink(text, identity) : null);
      fill(facts, name(shortDataset(shown.dataset)), ` as of ${identity.as_of}, ${count(counts.symbols, "symbol")}, ${identity.precision} on ${identity.backend}, digest `,
        h("code", { title: answer.answer_digest }, answer.answer_digest.slice(0, 12)));
      fill(condition, said.scan ? count(said.scan.length, "scan") : h("bdi", {}, said.where ?? ""));
      const all = counts.failed > 0 && counts.failed === (counts.rows ?? counts.symbols);
      const reasons = answer.rows.filter((row) => row.status === "failed");
      fill(failed, counts.failed > 0 && h("p", { class: "problem" },
        all ? "Every symbol failed: " : `${count(counts.failed, "symbol")} failed: `, h("bdi", {}, reasons[0]?.reason ?? "")));
      filter.value = "";
      element.hidden = false;
      table.setStatuses(null);
      table.setFilter("");
      table.setAnswer(answer);
    },
    /** Shows exports of an answer that is too large for the page. */
    showTooLarge(scan) {
      shown = null;
      fill(tools, exports(scan));
      fill(chips);
      fill(condition);
      fill(failed);
      fill(facts, `The answer has more than ${bytes(ANSWER_BYTES_MAX)}, which this page does not read. Download it instead.`);
      element.hidden = false;
      table.setAnswer({ rows: [], text_columns: [] });
    },
    hide() { element.hidden = true; },
    focusFilter: () => filter.focus(),
  };
}
