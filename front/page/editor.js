// The editor of a scan: a text area, above a copy of its text that has colours and underlined mistakes, with completion.
//
// The text area has the text, the cursor and the focus, so that everything the browser does for text works: undo, find, input
// methods, screen readers. The copy is hidden from the latter.

import { fill, h, uniqueId } from "./dom.js";
import { lineColumn, placeOf, suggested, tokens, wordAt } from "./language.js";

/** Most completions that are offered at once. */
const OFFERED_MAX = 12;
/** Longest document that is coloured, in characters. */
const COLOURED_MAX = 100_000;

/** `complete(context, text)` gives `[{text, insert, what, more}]`; `changed(text)` is called after each change. */
export function createEditor({ complete, changed, run }) {
  const listId = uniqueId("completions");
  const mistakesId = uniqueId("mistakes");
  const area = h("textarea", {
    spellcheck: "false", autocomplete: "off", autocapitalize: "off", wrap: "off", rows: 11, dir: "ltr", "aria-label": "Scan document",
    "aria-haspopup": "listbox", "aria-controls": listId, "aria-autocomplete": "list", "aria-describedby": mistakesId,
  });
  const copy = h("pre", { "aria-hidden": "true", dir: "ltr" });
  const list = h("ul", { id: listId, role: "listbox", "aria-label": "Completions", class: "completions", hidden: true });
  const box = h("div", { class: "editor" }, copy, area, list);
  const mistakesList = h("ol", { class: "mistakes", id: mistakesId, "aria-live": "polite" });
  const element = h("div", {}, box, mistakesList);
  let mistakes = [];
  let offered = [];
  let chosen = 0;
  let context = null;
  // Escape gives the Tab key back to the page.
  let tabLeaves = false;

  function paint() {
    const text = area.value;
    const marks = mistakes.map((mistake) => mistake.place).filter(Boolean);
    const cuts = new Set([0, text.length]);
    const spans = text.length <= COLOURED_MAX ? tokens(text) : [];
    for (const { start, end } of [...spans, ...marks]) cuts.add(start).add(Math.max(end, start));
    const at = [...cuts].sort((a, b) => a - b);
    const parts = [];
    let next = 0;
    for (let i = 0; i + 1 < at.length; i += 1) {
      const [start, end] = [at[i], at[i + 1]];
      while (next < spans.length && spans[next].end <= start) next += 1;
      const kind = spans[next] && spans[next].start <= start ? spans[next].kind : "";
      const wrong = marks.some((mark) => mark.start <= start && end <= mark.end);
      const piece = text.slice(start, end);
      parts.push(kind || wrong ? h("span", { class: `${kind && `t-${kind}`} ${wrong ? "wrong" : ""}` }, piece) : piece);
    }
    // A mistake at the end of a line, or of the text, has no character to underline.
    fill(copy, parts, marks.some((mark) => mark.start >= text.length) ? h("span", { class: "wrong" }, " ") : "", "\n");
    scrolled();
  }
  function scrolled() {
    copy.scrollLeft = area.scrollLeft;
    copy.scrollTop = area.scrollTop;
  }

  function showMistakes(found, message = "") {
    const text = area.value;
    mistakes = found.map((mistake) => ({ ...mistake, place: placeOf(mistake, text) }));
    area.setAttribute("aria-invalid", found.length > 0 || message ? "true" : "false");
    fill(mistakesList, mistakes.map(mistakeLine), message && h("li", {}, h("span", { class: "what" }, message)));
    paint();
  }
  function mistakeLine(mistake) {
    const { place } = mistake;
    const offer = suggested(mistake);
    const where = place ? lineColumn(area.value, place.start).join(":") : mistake.source;
    const go = () => { area.focus(); if (place) area.setSelectionRange(place.start, place.end); };
    return h("li", {},
      h("button", { type: "button", class: "place", onclick: go, "aria-label": `Go to line ${where}` }, where), " ",
      h("span", { class: "what" }, mistake.message),
      mistake.expected && h("span", { class: "expected" }, mistake.expected),
      offer && place
        ? h("button", { type: "button", class: "fix", onclick: () => apply(mistake, offer) }, "Write ", h("code", {}, offer))
        : mistake.help && h("span", { class: "help" }, mistake.help));
  }
  function apply({ place }, offer) {
    area.focus();
    replace(place.start, place.end, offer);
    showMistakes([]);
    edited();
  }
  /** Replaces a part so that the browser's undo knows it. */
  function replace(start, end, text) {
    area.setSelectionRange(start, end);
    if (!document.execCommand("insertText", false, text)) area.setRangeText(text, start, end, "end");
  }

  function edited() {
    paint();
    changed(area.value);
  }

  // Completion

  function offer(force) {
    if (area.selectionStart !== area.selectionEnd) return close();
    context = wordAt(area.value, area.selectionStart);
    if (!context || (!force && context.word.length === 0)) return close();
    const word = context.word.toLowerCase();
    const all = complete(context, area.value);
    const begins = all.filter((item) => item.text.toLowerCase().startsWith(word));
    const contains = all.filter((item) => !item.text.toLowerCase().startsWith(word) && item.text.toLowerCase().includes(word));
    offered = [...begins, ...(word.length > 1 || force ? contains : [])].slice(0, OFFERED_MAX);
    // The word itself, complete, is no offer.
    if (offered.length === 0 || (offered.length === 1 && offered[0].text === context.word && !force)) return close();
    chosen = 0;
    fill(list, offered.map((item, i) => h("li", {
      role: "option", id: `${listId}-${i}`, onpointerdown: (event) => { event.preventDefault(); take(i); },
    }, h("code", {}, item.text), h("span", { class: "kind" }, item.what), item.more && h("span", { class: "more" }, item.more))));
    place();
    list.hidden = false;
    mark();
  }
  function place() {
    const style = getComputedStyle(area);
    const [line, column] = lineColumn(area.value, context.start);
    const width = characterWidth(style);
    const left = parseFloat(style.paddingLeft) + (column - 1) * width - area.scrollLeft;
    const top = parseFloat(style.paddingTop) + line * parseFloat(style.lineHeight) - area.scrollTop;
    list.style.left = `${Math.max(0, Math.min(left, box.clientWidth - 240))}px`;
    list.style.top = `${Math.min(top + 2, box.clientHeight)}px`;
  }
  function mark() {
    [...list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === chosen)));
    list.children[chosen]?.scrollIntoView({ block: "nearest" });
    area.setAttribute("aria-activedescendant", `${listId}-${chosen}`);
  }
  function close() {
    offered = [];
    list.hidden = true;
    area.removeAttribute("aria-activedescendant");
  }
  function take(i) {
    const item = offered[i];
    const end = context.start + context.word.length;
    close();
    replace(context.start, end, item.insert ?? item.text);
    edited();
  }

  area.addEventListener("input", () => { tabLeaves = false; mistakes = []; edited(); offer(false); });
  area.addEventListener("scroll", () => { scrolled(); close(); });
  area.addEventListener("blur", close);
  area.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    const ctrl = event.ctrlKey || event.metaKey;
    if (ctrl && event.key === "Enter") run();
    else if (ctrl && event.key === " ") offer(true);
    else if (ctrl && event.key === ".") mistakesList.querySelector(".fix")?.click();
    else if (offered.length > 0 && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      chosen = (chosen + (event.key === "ArrowDown" ? 1 : offered.length - 1)) % offered.length;
      mark();
    } else if (offered.length > 0 && (event.key === "Enter" || event.key === "Tab")) take(chosen);
    else if (event.key === "Escape") { tabLeaves = offered.length === 0; close(); }
    else if (event.key === "Tab" && !event.shiftKey && !tabLeaves) replace(area.selectionStart, area.selectionEnd, "  ");
    else return;
    event.preventDefault();
  });

  return {
    element,
    focus: () => area.focus(),
    get text() { return area.value; },
    /** Replaces the text, without calling `changed`. */
    set text(text) { area.value = text; mistakes = []; fill(mistakesList); paint(); },
    showMistakes,
  };
}

let measured = null;
function characterWidth(style) {
  if (!measured) {
    const context = document.createElement("canvas").getContext("2d");
    context.font = `${style.fontSize} ${style.fontFamily}`;
    measured = context.measureText("0000000000").width / 10;
  }
  return measured;
}
