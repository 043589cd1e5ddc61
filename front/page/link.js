// What an address of this page says behind its '#': a view and, as JSON in base64url, what it shows. Servers never see it.

/** Longest text that is read from an address. */
const PAYLOAD_CHARACTERS_MAX = 200_000;

/** `#/VIEW/PAYLOAD`. */
export function address(view, payload) {
  if (payload === undefined) return `#/${view}`;
  const raw = new TextEncoder().encode(JSON.stringify(payload));
  let binary = "";
  for (const byte of raw) binary += String.fromCharCode(byte);
  return `#/${view}/${btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "")}`;
}

/** The view and the payload of an address; a payload that cannot be read is null. */
export function parsed(hash) {
  const [, view = "", text = ""] = hash.split("/");
  if (!text || text.length > PAYLOAD_CHARACTERS_MAX) return { view, payload: null };
  try {
    const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    const payload = JSON.parse(new TextDecoder().decode(Uint8Array.from(binary, (c) => c.charCodeAt(0))));
    return { view, payload: payload && typeof payload === "object" ? payload : null };
  } catch {
    return { view, payload: null };
  }
}

/** The document with its dataset at a snapshot, so that new bars do not change its answer. */
export function pinned(text, identity) {
  const wanted = `dataset = "${identity.dataset}@${identity.snapshot}"`;
  const lines = text.split("\n");
  for (let i = 0; i < lines.length && !lines[i].trimStart().startsWith("["); i += 1) {
    const found = /^\s*dataset\s*=\s*("[^"]*"|'[^']*')(.*)$/.exec(lines[i]);
    if (found) {
      lines[i] = wanted + found[2];
      return lines.join("\n");
    }
  }
  return `${wanted}\n${text}`;
}
