// Scan documents as text: tokens for colours, the place of a mistake, the word under the cursor.
//
// This is no parser: the server decides what a document means. A wrong guess here costs a colour or a completion.

const WORDS = new Set(["and", "or", "not", "in", "as", "true", "false", "asc", "desc"]);
export const KEYS = [
  "name", "dataset", "timeframe", "adjust", "precision", "max_age", "forming", "universe", "where", "rank", "limit", "select",
  "history", "best", "sweep_where", "[let]", "[def]", "[sweep]", "[[scan]]",
];
/** Keys whose text is a name and no expression. */
const NAMED = new Set(["name", "dataset", "timeframe", "adjust", "precision", "max_age"]);
const EXPRESSION = /('[^'\n]*'?)|([A-Za-z_][A-Za-z0-9_]*)(\s*\()?|(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|([^\sA-Za-z0-9_'])/g;

/** The tokens of a document: `{start, end, kind}` in order, in UTF-16 units. What is between them is plain. */
export function tokens(text) {
  const found = [];
  let at = 0;
  for (const line of text.split("\n")) {
    lineTokens(line, at, found);
    at += line.length + 1;
  }
  return found;
}

function lineTokens(line, at, found) {
  const put = (start, end, kind) => found.push({ start: at + start, end: at + end, kind });
  const head = /^(\s*)(\[\[?[^\]]*\]?\]?)/.exec(line);
  let i = 0;
  let named = false;
  if (head && !line.includes("=")) {
    put(head[1].length, head[0].length, "table");
    i = head[0].length;
  } else {
    const key = /^(\s*)("[^"]*"|[A-Za-z0-9_.-]+)\s*=/.exec(line);
    if (key) {
      put(key[1].length, key[1].length + key[2].length, "key");
      i = key[0].length;
      named = NAMED.has(key[2]);
    }
  }
  while (i < line.length) {
    const c = line[i];
    if (c === "#") {
      put(i, line.length, "comment");
      return;
    }
    if (c === '"' || c === "'") {
      let end = i + 1;
      while (end < line.length && line[end] !== c) end += c === '"' && line[end] === "\\" ? 2 : 1;
      end = Math.min(end, line.length);
      put(i, i + 1, "quote");
      if (c === '"' && !named) expressionTokens(line.slice(i + 1, end), at + i + 1, found);
      else put(i + 1, end, "string");
      if (end < line.length) put(end, end + 1, "quote");
      i = end + 1;
      continue;
    }
    const number = /^(\d[\d_.]*|true|false)\b/.exec(line.slice(i));
    if (number) put(i, i + number[0].length, "number");
    i += number ? number[0].length : 1;
  }
}

function expressionTokens(text, at, found) {
  for (const match of text.matchAll(EXPRESSION)) {
    const [, string, word, call, number] = match;
    const start = at + match.index;
    if (string) found.push({ start, end: start + string.length, kind: "string" });
    else if (word) found.push({ start, end: start + word.length, kind: WORDS.has(word) ? "word" : call ? "function" : "name" });
    else if (number) found.push({ start, end: start + number.length, kind: "number" });
  }
}

/** UTF-16 units of so many characters from `from` on: places of the server are in characters. */
function units(text, characters) {
  let at = 0;
  for (let n = 0; n < characters && at < text.length; n += 1) at += text.codePointAt(at) > 0xffff ? 2 : 1;
  return at;
}

/** Where a mistake is in the document: `{start, end}`, or null where its text is not found. */
export function placeOf(mistake, text) {
  const inside = (offset, source) => {
    const start = offset + units(source, mistake.start);
    const end = offset + units(source, mistake.end);
    return { start: Math.min(start, text.length), end: Math.min(Math.max(end, start), text.length) };
  };
  if (mistake.source === "document" || mistake.text === text) return inside(0, text);
  // A clause: its text is somewhere behind its key.
  const key = mistake.source.replace(/^(let|def)\./, "").replace(/\[\d+\]$/, "");
  const line = new RegExp(`^\\s*"?${key.replace(/[^A-Za-z0-9_]/g, "\\$&")}"?[^=\\n]*=`, "m").exec(text);
  const offset = text.indexOf(mistake.text, line ? line.index + line[0].length : 0);
  if (offset >= 0 && mistake.text) return inside(offset, mistake.text);
  return line ? { start: line.index, end: line.index + line[0].length } : null;
}

/** The text that a suggestion offers for the place, if it offers one: `did you mean 'close'?`. */
export function suggested(mistake) {
  return /did you mean '([^']+)'/.exec(mistake.help ?? "")?.[1] ?? null;
}

/** Line and column of a place, from 1. */
export function lineColumn(text, at) {
  const before = text.slice(0, at).split("\n");
  return [before.length, before[before.length - 1].length + 1];
}

/** What is typed at the cursor: the word before it, and where it is: `key`, `expression`, `string`, `dataset`. */
export function wordAt(text, caret) {
  const lineStart = text.lastIndexOf("\n", caret - 1) + 1;
  const line = text.slice(lineStart, caret);
  const comment = /^[^"']*#/.test(line);
  const key = /^\s*"?([A-Za-z0-9_.-]+)"?[^=]*=/.exec(line);
  // Quotes before the cursor say whether it is inside a text, and single ones whether inside a name in it.
  let inside = false;
  let name = false;
  let nameStart = 0;
  for (let i = 0; i < line.length; i += 1) {
    if (line[i] === '"' && !name) inside = !inside;
    else if (line[i] === "'" && inside) {
      name = !name;
      nameStart = i + 1;
    }
  }
  if (comment) return null;
  if (!inside) {
    const continued = /^\s*[\])"]/.test(line);
    const word = /[[A-Za-z_]*$/.exec(line)[0];
    return key || continued ? null : { where: "key", word, start: caret - word.length };
  }
  if (key?.[1] === "dataset") {
    const word = line.slice(line.lastIndexOf('"') + 1);
    return { where: "dataset", word, start: caret - word.length };
  }
  if (name) {
    const word = line.slice(nameStart);
    return { where: "string", word, start: caret - word.length };
  }
  const word = /[A-Za-z_][A-Za-z0-9_]*$/.exec(line)?.[0] ?? "";
  return { where: "expression", word, start: caret - word.length };
}

/** Names that the document itself defines under [let], [def] and [sweep]. */
export function ownNames(text) {
  const names = [];
  let table = "";
  for (const line of text.split("\n")) {
    const head = /^\s*\[+\s*([a-z_]+)/.exec(line);
    if (head) table = head[1];
    const key = /^\s*"?([A-Za-z_][A-Za-z0-9_]*)(\([^"]*\))?"?\s*=/.exec(line);
    if (key && ["let", "def", "sweep"].includes(table)) names.push({ text: key[1], what: table, call: Boolean(key[2]) });
  }
  return names;
}

/** The dataset that the document names, or an empty text. */
export function datasetOf(text) {
  const top = text.split(/^\s*\[/m)[0];
  return /^\s*dataset\s*=\s*(?:"([^"]*)"|'([^']*)')/m.exec(top)?.slice(1).find(Boolean) ?? "";
}
