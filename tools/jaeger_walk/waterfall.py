"""Draws a trace from Jaeger's API as a picture: the tree of spans over time, as Jaeger's own page shows it."""

import html

import traces
from traces import tag

WIDTH, NAMES, ROW, TOP, RIGHT = 1000, 290, 19, 46, 110
COLOURS = {"trawl": "#7b61a8", "trawl-coordinator": "#1f77b4", "trawl-worker": "#d1782f"}
# Of the shards, so many of the slowest, and those that they are linked with; of the others so many.
SLOWEST, OTHERS, TICKS = 2, 1, 5


def chosen(trace):
    """The shards that are drawn: the slowest, their hedges, and a few others."""
    by_length = sorted(traces.shards(trace), key=lambda s: -s["duration"])
    first = by_length[:SLOWEST]
    linked = [a for a, b in traces.follows(trace) if b in first] + [b for a, b in traces.follows(trace) if a in first]
    others = [s for s in by_length if s not in first and s not in linked]
    return [s["spanID"] for s in first + linked + others[-OTHERS:]]


def rows(trace):
    """[(depth, span)] in the order of the tree, without the shards that are not drawn."""
    drawn, children = chosen(trace), {}
    for span in trace["spans"]:
        children.setdefault(traces.parent(span), []).append(span)

    def below(span, depth):
        yield depth, span
        for child in sorted(children.get(span["spanID"], []), key=lambda s: s["startTime"]):
            if child["operationName"] != "shard" or child["spanID"] in drawn:
                yield from below(child, depth + 1)

    return list(below(children[None][0], 0))


def label(span):
    words = [span["operationName"]]
    if span["operationName"] == "shard":
        words += [str(tag(span, "trawl.shard")), "on", str(tag(span, "trawl.worker"))]
        words += [mark for key, mark in (("trawl.slow", "slow"), ("trawl.hedge", "hedge")) if tag(span, key) is True]
    return " ".join(words)


def summary(trace):
    """The drawn spans as data: microseconds from the trace's begin, and Trawl's own tags."""
    begin = min(s["startTime"] for s in trace["spans"])
    return [
        {
            "depth": depth,
            "operation": span["operationName"],
            "service": traces.service(trace, span),
            "start_us": span["startTime"] - begin,
            "duration_us": span["duration"],
            "tags": {t["key"]: t["value"] for t in span["tags"] if t["key"].startswith("trawl.")},
        }
        for depth, span in rows(trace)
    ]


def picture(trace, versions):
    """The picture as SVG."""
    lines = rows(trace)
    begin = min(s["startTime"] for s in trace["spans"])
    total = max(s["startTime"] + s["duration"] for s in trace["spans"]) - begin
    across = lambda micros: NAMES + (WIDTH - NAMES - RIGHT) * micros / total
    height = TOP + ROW * len(lines) + 30
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">',
        "<title>A trace of a scan with one slow worker, from Jaeger</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for number, (service, colour) in enumerate(COLOURS.items()):
        out.append(f'<rect x="{10 + 150 * number}" y="9" width="10" height="10" fill="{colour}"/>')
        out.append(f'<text x="{25 + 150 * number}" y="18">{service}</text>')
    for tick in range(TICKS + 1):
        x = across(total * tick / TICKS)
        out.append(f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - 26}" stroke="#dddddd"/>')
        out.append(
            f'<text x="{x:.1f}" y="{TOP - 12}" text-anchor="middle" fill="#666666">{total * tick / TICKS / 1e6:.2f} s</text>'
        )
    for number, (depth, span) in enumerate(lines):
        y, colour = TOP + ROW * number, COLOURS.get(traces.service(trace, span), "#888888")
        x, width = across(span["startTime"] - begin), max(1.5, across(span["duration"]) - NAMES)
        out.append(f'<text x="{10 + 14 * depth}" y="{y + 12}">{html.escape(label(span))}</text>')
        out.append(f'<rect x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="{ROW - 7}" fill="{colour}"/>')
        out.append(f'<text x="{x + width + 5:.1f}" y="{y + 12}" fill="#666666">{span["duration"] / 1e3:.1f} ms</text>')
    left = len(trace["spans"]) - len(lines)
    words = f"{len(lines)} of {len(trace['spans'])} spans; {left} of further shards are left out. Collector {versions['the collector']}, Jaeger {versions['Jaeger']}."
    out.append(f'<text x="10" y="{height - 9}" fill="#666666">{html.escape(words)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"
