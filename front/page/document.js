// A scan document as text, from the form in which an answer has it.

const TABLES = ["let", "def", "sweep"];

const key = (name) => (/^[A-Za-z0-9_-]+$/.test(name) ? name : text(name));
// TOML's strings are those of JSON, but for one character.
const text = (x) => JSON.stringify(x).replaceAll("\u007f", "\\u007f");

function value(x) {
  if (Array.isArray(x)) return `[${x.map(value).join(", ")}]`;
  if (x !== null && typeof x === "object") return `{ ${Object.entries(x).map(([name, inner]) => `${key(name)} = ${value(inner)}`).join(", ")} }`;
  return typeof x === "string" ? text(x) : String(x);
}

const lines = (object) => Object.entries(object).map(([name, x]) => `${key(name)} = ${value(x)}`);

/** The document of a scan that is known as an object: what is not in a table first, as TOML wants it. */
export function documentText(scan) {
  const plain = Object.entries(scan).filter(([name]) => !TABLES.includes(name) && name !== "scan" && !(name === "where" && scan.scan));
  const parts = [lines(Object.fromEntries(plain))];
  for (const name of TABLES) if (Object.keys(scan[name] ?? {}).length > 0) parts.push([`[${name}]`, ...lines(scan[name])]);
  for (const member of scan.scan ?? []) parts.push(["[[scan]]", ...lines(member)]);
  return `${parts.map((part) => part.join("\n")).join("\n\n")}\n`;
}
