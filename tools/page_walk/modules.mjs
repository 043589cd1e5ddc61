// The page's modules by themselves, in the browser: places in texts, filters, differences, links.

import { createProxy, serve } from "./stage.mjs";

export async function modulesWalk({ trawl, world, check }) {
  const server = await serve(trawl);
  const proxy = await createProxy(server.url);
  try {
    const page = await world.page(proxy.url);
    const found = await page.evaluate(async () => {
      const [language, link, table, compare, dom, document] = await Promise.all(["language", "link", "table", "compare", "dom", "document"].map((name) => import(`/${name}.js`)));
      const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
      const out = {};
      const text = 'dataset = "demo"\nwhere = "😀é + clse > 1"\nselect = ["close", "clse + 1"]\n';
      const cut = (place) => place && text.slice(place.start, place.end);
      const start = [...text].join("").indexOf("clse");
      const characters = [...text.slice(0, start)].length;
      out["a place in the document is counted in characters"] = cut(language.placeOf({ source: "document", text, start: characters, end: characters + 4 }, text)) === "clse";
      out["a place in a clause is found in the document"] = language.placeOf({ source: "select[2]", text: "clse + 1", start: 0, end: 4 }, text).start === text.lastIndexOf("clse");
      out["characters outside the basic plane count once"] = cut(language.placeOf({ source: "where", text: "😀é + clse > 1", start: 5, end: 9 }, text)) === "clse";
      out["a clause whose text is not found marks its key"] = cut(language.placeOf({ source: "where", text: "something else", start: 0, end: 4 }, text)) === "where =";
      out["a place behind the end is the end"] = language.placeOf({ source: "document", text, start: 9e6, end: 9e6 }, text).start === text.length;
      out["a suggestion is read"] = language.suggested({ help: "did you mean 'close'?" }) === "close" && language.suggested({ help: "write it out" }) === null;
      const where = (before) => language.wordAt(before, before.length)?.where ?? "";
      out["the cursor's context"] = same(["whe", 'where = "rs', "where = \"ref('S", 'dataset = "de', "# com", 'x = "a" # c'].map(where), ["key", "expression", "string", "dataset", "", ""]);
      const kinds = language.tokens('a = "rsi(14) and \'x\'" # c').map((token) => token.kind);
      out["tokens"] = same(kinds, ["key", "quote", "function", "number", "word", "string", "quote", "comment"]) || kinds.join();
      let tangled = true;
      for (let seed = 1; seed < 400; seed += 1) {
        // Any text has tokens that follow each other.
        const signs = "a1\"'#[]=\\ \n(.😀é";
        let random = seed;
        const any = Array.from({ length: 60 }, () => { random = (random * 1103515245 + 12345) % 2147483648; return signs[random % signs.length]; }).join("");
        const list = language.tokens(any);
        tangled &&= list.every((token, i) => token.start <= token.end && token.end <= any.length && (i === 0 || list[i - 1].end <= token.start));
        language.wordAt(any, 30);
        language.ownNames(any);
      }
      out["tokens of any text follow each other"] = tangled;
      out["own names"] = same(language.ownNames('[let]\nslow = "1"\n[def]\n"top(x, k)" = "2"\n').map((own) => own.text), ["slow", "top"]);
      const identity = { dataset: "demo", snapshot: "ab".repeat(32) };
      out["a link pins the snapshot"] = link.pinned(text, identity).startsWith(`dataset = "demo@${identity.snapshot}"\nwhere`) && link.pinned("[let]\ndataset = \"x\"\n", identity).startsWith("dataset = \"demo@");
      const scans = { dataset: "d", limit: 3, where: "", select: ['a "b"\n'], sweep: { n: { from: 2, to: 5 }, k: [1, 2.5] }, def: { "f(x)": "x" }, scan: [{ name: "a", where: "close > n", let: { m: "2" } }] };
      out["a document from an answer"] = document.documentText(scans) === `dataset = "d"\nlimit = 3\nselect = ["a \\"b\\"\\n"]\n\n[def]\n"f(x)" = "x"\n\n[sweep]\nn = { from = 2, to = 5 }\nk = [1, 2.5]\n\n[[scan]]\nname = "a"\nwhere = "close > n"\nlet = { m = "2" }\n` || document.documentText(scans);
      const payload = { text: "é😀\"<>", as_of: "2024-12-06" };
      out["a payload comes back"] = same(link.parsed(link.address("scan", payload)), { view: "scan", payload });
      out["a payload that is none is ignored"] = same(["#/scan/%%%", "#/scan/bnVsbA", "#/scan/e30", "", "#"].map((hash) => link.parsed(hash).payload), [null, null, {}, null, null]);
      const row = (symbol, status, close, more = {}) => ({ time: "t", place: null, symbol, status, edge: false, provisional: false, reason: "", close, ...more });
      const answer = (rows) => ({ rows, text_columns: [] });
      const change = compare.difference(answer([row("A", "matched", 1), row("B", "matched", 2), row("C", "matched", 3)]), answer([row("A", "matched", 1), row("B", "not_matched", null), row("C", "matched", 4), row("D", "matched", 5)]));
      out["a difference"] = same([change.entered.map((x) => x.symbol), change.left.map((x) => [x.symbol, x.now.status]), change.changed.map((x) => x.symbol), change.same], [["D"], [["B", "not_matched"]], ["C"], 1]);
      out["a difference of nothing"] = same(Object.values(compare.difference(answer([]), answer([]))).flat(), [0]);
      const columns = table.columnsOf(answer([row("A", "matched", "inf"), row("B", "matched", null), row("C", "matched", -3)]));
      const test = (filter) => { const { tests } = table.filterOf(filter, columns); return [0, 1, 2].filter((i) => tests.every((one) => one(i))); };
      out["comparisons of a filter"] = same([test("close>5"), test("close<0"), test("close>=-3"), test("close=-3")], [[0], [2], [0, 2], [2]]);
      out["values"] = same([null, true, 1234567, 0.1234567, 1e-9, "inf", -0.5, 1e300].map(dom.value), ["–", "true", "1,234,567", "0.123457", "1.0000e-9", "inf", "-0.5", "1.0000e+300"]);
      return out;
    });
    for (const [what, holds] of Object.entries(found)) check(what, holds === true, holds === true ? "" : String(holds));
  } finally {
    proxy.stop();
    await server.stop();
  }
}
