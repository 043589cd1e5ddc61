#!/usr/bin/env python3
"""How far the elementary functions are from the exact values (by mpmath), in units in the last place, as a table.

    cargo build --profile ci -p trawl-plan --examples
    "$(tools/get-venv)" tools/elementary_accuracy.py --program target/ci/examples/elementary [--points 1000000] [--page docs/accuracy.md]

Exits with 1 if an error exceeds LIMIT_ULP or a special value (NaN, infinity, sign of a zero) is another one. --page replaces
the table of that page.
"""

import argparse
import concurrent.futures
import math
import os
import pathlib
import struct
import subprocess
import sys

import elementary_points as points
from mpmath import mp, mpf

LIMIT_ULP = 0.51
# Points of one job.
CHUNK = 20_000
BEGIN, END = "<!-- elementary: begin -->\n", "<!-- elementary: end -->\n"


def error_ulp(name, x, y, got):
    """|got - exact| in units of the exact value's last place; infinite where a special value is wrong."""
    special = points.special(name, x, y)
    if special is not None:
        same = got == special and math.copysign(1, got) == math.copysign(1, special)
        return 0.0 if same or (math.isnan(got) and math.isnan(special)) else math.inf
    far = name in ("sin", "cos", "tan") and abs(x) > 1e6
    with mp.workprec(points.TURN_BITS if far else points.VALUE_BITS):
        value = points.exact(name, x, y)
        near = points.rounded(value)
        if math.isinf(near) or not math.isfinite(got):
            return 0.0 if got == near else math.inf
        return abs(float((mpf(got) - value) / mpf(math.ulp(near))))


def measured(program, name, chunk):
    """(largest error, where)"""
    numbers = [v for pair in chunk for v in (pair if name == "pow" else pair[:1])]
    packed = struct.pack(f"<{len(numbers)}d", *numbers)
    out = subprocess.run([program, name], input=packed, stdout=subprocess.PIPE, check=True).stdout
    values = struct.unpack(f"<{len(chunk)}d", out)
    return max((error_ulp(name, x, y, got), x, y) for (x, y), got in zip(chunk, values))


def jobs(name, count):
    """(kind, points): half of them as they are usual, half extreme; the edges once."""
    yield "edges", points.edges(name)
    for kind, sets in (("usual", points.USUAL[name]), ("extreme", points.EXTREME[name])):
        for i in range(0, count // 2, CHUNK):
            yield kind, points.drawn(name, min(CHUNK, count // 2 - i), f"{kind} {i}", sets)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--program", required=True)
    arguments.add_argument("--points", type=int, default=1_000_000)
    arguments.add_argument("--page", type=pathlib.Path)
    arguments.add_argument("--jobs", type=int, default=os.cpu_count())
    options = arguments.parse_args()
    lines = ["| function | points | usual arguments: error | extreme arguments: error | edges: error | largest at |",
             "|---|---:|---:|---:|---:|---|"]
    worst_of_all = 0.0
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        for name in points.FUNCTIONS:
            found = {"usual": [], "extreme": [], "edges": []}
            total = 0
            waiting = []
            for kind, chunk in jobs(name, options.points):
                total += len(chunk)
                waiting.append((kind, pool.submit(measured, options.program, name, chunk)))
            for kind, done in waiting:
                found[kind].append(done.result())
            worst = {kind: max(values) for kind, values in found.items()}
            error, x, y = max(worst.values())
            worst_of_all = max(worst_of_all, error)
            where = f"{x!r}, {y!r}" if name == "pow" else repr(x)
            cells = " | ".join(f"{worst[kind][0]:.4f}" for kind in ("usual", "extreme", "edges"))
            lines.append(f"| `{name}` | {total} | {cells} | {where} |")
            print(lines[-1], flush=True)
    if options.page:
        text = options.page.read_text()
        head, tail = text.split(BEGIN)[0], text.split(END)[1]
        options.page.write_text(head + BEGIN + "\n".join(lines) + "\n" + END + tail)
    sys.exit(worst_of_all > LIMIT_ULP)


if __name__ == "__main__":
    main()
