#!/usr/bin/env python3
"""Compares Trawl with TA-Lib on random series and random legal parameters, function by function.

    python tools/live [--cases 20000] [--seed 1] [--trawl target/ci/trawl] [--json FILE] [--markdown FILE]

Run it with the Python that tools/get-venv names. Every function that `trawl indicators` declares with TA-Lib as
reference is called equally often; a case is one call over one series. Values agree when |ours - TA-Lib's| <= 1e-9 *
max(1, |TA-Lib's|), defined exactly where TA-Lib is; whole-number outputs are 0 in TA-Lib's look-back and NA here. A bar
beyond that counts as unstable when either's own answer moves by as much under inputs disturbed by 1e-13 of themselves
(equal values stay equal), and as TA-Lib's rounding when Trawl is within the tolerance of the double-double value of
--reference and TA-Lib is as far from it as they are apart. The reference shares the formulas with Trawl, so a wrong
formula looks like rounding too: a function with such bars in more than a fiftieth of its cases fails. Anything else is a
difference, printed with what repeats it, and the exit code is 1. Bars where TA-Lib is within the tolerance of the
double-double value and Trawl is not are counted as behind, whatever explains them: a decision that fell the other way, or
less accuracy.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import sys
import tempfile
import time
import zlib

sys.dont_write_bytecode = True

import numpy  # noqa: E402
import talib  # noqa: E402

import cases  # noqa: E402
import compare  # noqa: E402
import report  # noqa: E402
import series  # noqa: E402
from bench import Bench  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


def evidence(bench, columns, found):
    """Checks the comparisons that do not agree: with disturbed inputs first, then with the reference."""
    differing = left = [c for c in found if not c.agrees()]
    for seed in range(1, compare.DISTURBED_RUNS + 1):
        if not left:
            break
        other = series.disturbed(columns, compare.DISTURBANCE, seed)
        bench.write(other)
        for comparison, ours in zip(left, bench.of_cases([c.case for c in left])):
            comparison.disturb(ours, comparison.case.reference(other))
        left = [c for c in left if c.stable_difference()]
    if bench.reference and differing:
        bench.write(columns)
        for comparison, exact in zip(differing, bench.of_cases([c.case for c in differing], [bench.reference])):
            comparison.reference = [] if any(isinstance(x, str) for x in exact) else exact


def batch(programs, functions, seed, number):
    """Every function once, over one series: the findings of each case."""
    family, columns = series.make(numpy.random.default_rng([seed, number]))
    # Each function has a stream of its own, so that running one alone repeats its cases of the full run.
    drawn = [cases.draw(numpy.random.default_rng([seed, number, zlib.crc32(f["name"].encode())]), f) for f in functions]
    findings, found = [], []
    with tempfile.TemporaryDirectory(prefix="trawl-live-") as name:
        bench = Bench(*programs, pathlib.Path(name))
        bench.write(columns)
        for case, ours in zip(drawn, bench.of_cases(drawn)):
            refusals = [x for x in ours if isinstance(x, str)]
            try:
                theirs = case.reference(columns)
            except Exception as error:  # TA-Lib's wrapper raises bare exceptions.
                refusals, theirs = [f"TA-Lib: {error}"], []
            if refusals:
                findings.append(report.Finding(case.function, refused=f"{place(case, family, seed, number)}: {refusals[0]}"))
            else:
                found.append(compare.Comparison(case, ours, theirs))
        evidence(bench, columns, found)
    for comparison in found:
        case = comparison.case
        findings.append(report.Finding(case.function, comparison.outputs(), place(case, family, seed, number)))
    return findings


def place(case, family, seed, number):
    return f"{case.expressions()[0]} over '{family}', --seed {seed} --first {number}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--trawl", default=os.environ.get("TRAWL_BIN", str(ROOT / "target/ci/trawl")))
    arguments.add_argument("--reference", help="the example `reference` of trawl-kernels")
    arguments.add_argument("--cases", type=int, default=20_000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--first", type=int, default=0, help="number of the first batch")
    arguments.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments.add_argument("--only", help="functions, separated by commas")
    arguments.add_argument("--json")
    arguments.add_argument("--markdown")
    options = arguments.parse_args()
    functions = cases.catalogue(options.trawl)
    lacking = sorted({name.lower() for name in talib.get_functions()} - {f["name"] for f in functions})
    if options.only:
        functions = [f for f in functions if f["name"] in options.only.split(",")]
    batches = range(options.first, options.first + max(1, -(-options.cases // max(1, len(functions)))))
    start, summary = time.monotonic(), report.Summary([f["name"] for f in functions])
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        made = [pool.submit(batch, (options.trawl, options.reference), functions, options.seed, n) for n in batches]
        for done in made:
            for finding in done.result():
                summary.add(finding)
    print(summary.text())
    print(f"TA-Lib's functions that the catalogue lacks: {', '.join(lacking) or 'none'}")
    print(f"seed {options.seed}, {len(batches)} series, {time.monotonic() - start:.0f} s")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(summary.data(), indent=1) + "\n")
    if options.markdown:
        pathlib.Path(options.markdown).write_text(summary.markdown())
    sys.exit(1 if summary.wrong() else 0)


if __name__ == "__main__":
    main()
