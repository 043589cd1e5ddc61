"""Traces as Jaeger's query API hands them out: whether they are whole, what is in them, and which samplers would choose them."""

import importlib.machinery
import importlib.util
import json
import pathlib
import re
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The program of deploy/ whose functions these checks use, so that they and its users read Jaeger's answers in one way.
_loader = importlib.machinery.SourceFileLoader("find_slow_shard", str(ROOT / "deploy/jaeger/find-slow-shard"))
walk = importlib.util.module_from_spec(importlib.util.spec_from_loader("find_slow_shard", _loader))
_loader.exec_module(walk)
tag, service, parent = walk.tag, walk.service, walk.parent


def get(jaeger, trace):
    """One trace, or None where Jaeger has none of this id."""
    try:
        found = walk.ask(jaeger.url, f"/api/traces/{trace}")
    except urllib.error.HTTPError as refused:
        if refused.code == 404:
            return None
        raise
    return found[0] if found else None


def links(jaeger, trace):
    """What the links of a trace's shards say (`hedge`, `retry`), from the API that answers in OTLP."""
    with urllib.request.urlopen(f"{jaeger.url}/api/v3/traces/{trace}", timeout=20) as answer:
        text = answer.read().decode()
    said = []
    for resource in json.loads(text)["result"]["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for link in span.get("links", []):
                    said += [a["value"]["stringValue"] for a in link.get("attributes", []) if a["key"] == "trawl.link"]
    return said


def follows(trace):
    """[(span, the span that it is linked to)] of one trace."""
    spans = {s["spanID"]: s for s in trace["spans"]}
    return [
        (s, spans[r["spanID"]])
        for s in trace["spans"]
        for r in s.get("references", [])
        if r["refType"] == "FOLLOWS_FROM" and r["spanID"] in spans
    ]


def shards(trace):
    return [s for s in trace["spans"] if s["operationName"] == "shard"]


def names(trace):
    return {s["operationName"] for s in trace["spans"]}


def tree(trace):
    """(spans without a parent, spans whose parent is not in the trace)."""
    ids = {s["spanID"] for s in trace["spans"]}
    roots = [s for s in trace["spans"] if parent(s) is None]
    return roots, [s for s in trace["spans"] if parent(s) is not None and parent(s) not in ids]


def why_kept(trace):
    """The policies of deploy/otelcol, other than chance, that a trace meets."""
    spans, found = trace["spans"], set()
    for span in spans:
        if tag(span, "otel.status_code") == "ERROR":
            found.add("errors")
        if tag(span, "trawl.slow") is True:
            found.add("slow-shards")
        if tag(span, "trawl.hedge") is True:
            found.add("hedges")
        if tag(span, "trawl.purpose") in ("isolation", "vote"):
            found.add("doubts")
    begin, end = min(s["startTime"] for s in spans), max(s["startTime"] + s["duration"] for s in spans)
    if end - begin > 5_000_000:
        found.add("slowest")
    return found


def chosen_by_head(trace, ratio):
    """Whether OpenTelemetry's sampler `traceidratio` chooses a trace: by the last 63 bits of its id."""
    return int(trace[16:], 16) >> 1 < int(ratio * (1 << 63))


def chosen_by_chance(trace, percent):
    """Whether the collector's policy `probabilistic` chooses a trace: by FNV-1a of its salt and the trace's id."""
    state = 0xCBF29CE484222325
    for byte in b"default-hash-seed" + bytes.fromhex(trace):
        state = (state ^ byte) * 0x100000001B3 % (1 << 64)
    return state <= int(((1 << 64) - 1) * percent / 100)


def documented():
    """Names of spans and of attributes in docs/telemetry.md."""
    page = (ROOT / "docs/telemetry.md").read_text()
    table = lambda title: set(
        re.findall(r"^\| `([\w.]+)` \|", page.split(f"\n## {title}\n")[1].split("\n## ")[0], re.M)
    )
    return table("Spans"), table("Attributes")
