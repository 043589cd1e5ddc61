#!/usr/bin/env python3
"""Writes the comparison with other libraries into README.md, from the newest files of benches/results.

    compare_table.py            writes what is between the two markers
    compare_table.py --check    exits with 1 if it is not current

A cell is the median of the fastest way that was measured of a library, so that Trawl is never compared with a library's slow
way. A library that was not measured on a job has an empty cell. Nothing is left out because Trawl loses it.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benches/results"
README = ROOT / "README.md"
BEGIN, END = "<!-- comparison: begin -->", "<!-- comparison: end -->"
LIBRARIES = ("trawl", "TA-Lib", "polars", "vectorbt")
# These have a column where the file of jobs has them.
MORE_LIBRARIES = ("DuckDB", "numpy", "pandas")
# A median of fewer runs is not shown.
RUNS_MIN = 3


def newest(benchmark):
    """(name, content) of the newest file of a benchmark."""
    files = sorted(RESULTS.glob(f"{benchmark}-*.json"))
    if not files:
        sys.exit(f"compare_table.py: benches/results has no {benchmark}-DATE.json")
    return files[-1].name, json.loads(files[-1].read_text())


def fastest(job, library):
    """Median seconds of a library's fastest way, or None."""
    ways = [way["median_s"] for way in job["ways"] if way["library"] == library and way["runs"] >= RUNS_MIN]
    return min(ways, default=None)


def row(what, numbers, form):
    """A line of the table, the smallest number in bold."""
    best = min(number for number in numbers if number is not None)
    cells = ["" if n is None else f"**{n:{form}}**" if n == best else f"{n:{form}}" for n in numbers]
    return f"| {what} | {' | '.join(cells)} |"


def table():
    """The text between the markers."""
    jobs_file, jobs = newest("jobs")
    screen_file, screen = newest("screen")
    more = [library for library in MORE_LIBRARIES if any(fastest(job, library) is not None for job in jobs["jobs"])]
    libraries = [*LIBRARIES, *more]
    heads = ["Trawl" if library == "trawl" else library for library in libraries]
    lines = [f"| Job | {' | '.join(heads)} |", "|---|" + "---:|" * len(libraries)]
    lines += [row(job["what"] + ", s", [fastest(job, library) for library in libraries], ".2f") for job in jobs["jobs"]]
    inside = [screen["trawl"]["together_ns_per_bar"], screen["talib"]["sum_ns_per_bar"]]
    inside += [None] * (len(libraries) - len(inside))
    shape = f"{screen['trawl']['symbols']:,} symbols x {screen['trawl']['bars']:,} bars"
    lines.append(row(f"the fifteen at every bar, {shape} in memory, one thread, ns a bar", inside, ".1f"))
    machine = jobs["machine"]
    tails = "TA-Lib, polars and DuckDB" if "DuckDB" in more else "TA-Lib and polars"
    lines += [
        "",
        f"Seconds are medians of whole processes on {machine['cores']} cores of an {machine['processor']}, shared with others: compare",
        f"ratios within a row ([{jobs_file}](benches/results/{jobs_file}), commit {jobs['commit']}). The last row was measured inside one",
        f"process on an {screen['machine']['processor']} ([{screen_file}](benches/results/{screen_file})). Each cell is the library's fastest",
        f"measured way, which for {tails} may read only the last bars; empty cells were not measured.",
    ]
    return "\n".join(lines)


def main():
    text = README.read_text()
    parts = re.fullmatch(rf"(.*{re.escape(BEGIN)}\n).*?({re.escape(END)}.*)", text, re.S)
    if not parts:
        sys.exit("compare_table.py: README.md lacks the two markers")
    wanted = f"{parts[1]}{table()}\n{parts[2]}"
    if "--check" in sys.argv[1:]:
        if text != wanted:
            sys.exit("README.md: the comparison is not that of benches/results: run `just compare-table`")
    else:
        README.write_text(wanted)


if __name__ == "__main__":
    main()
