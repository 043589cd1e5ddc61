#!/usr/bin/env python3
"""Writes docs/accuracy.md: how far Trawl and TA-Lib are from the double-double value of each indicator.

    python tools/live/accuracy.py [--trawl target/ci/trawl] [--reference target/ci/examples/reference] [--output FILE]

Golden series are those of tests/golden/talib with every parameter set there; stress series are one of each family of
series.py, with the default parameters.
"""

import argparse
import concurrent.futures
import csv
import gzip
import json
import os
import pathlib
import sys
import tempfile
from dataclasses import dataclass

sys.dont_write_bytecode = True

import numpy  # noqa: E402

import cases  # noqa: E402
import compare  # noqa: E402
import series  # noqa: E402
from bench import Bench  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/talib"
STRESS_BARS = 500
STRESS_SEED = 20
DISTURBED_RUNS = 16
# |error|/|exact| is taken where |exact| is at least this share of the output's largest.
TINY_SHARE = 1e-3

# Outputs that are whole numbers.
WHOLE = ("integer", "trend", "minidx", "maxidx", "swinghigh", "swinglow")

HEAD = """# Accuracy

How far each indicator's values are from the exact ones, and how far TA-Lib's are. The exact values are those of the same
formulas in double-double arithmetic (about 32 digits, `kernels/examples/reference.rs`), rounded to f64 at the end. Made
by `just accuracy`; digits may differ on another machine.

- *golden*: the series of `tests/golden/talib` with every parameter set there; *stress*: walks on a cent grid, spikes,
  flat stretches, prices about 1e-6 and 1e8, ticks of 1e-4 at 1e6, ties, no volume, with the default parameters.
- *error*: the largest |value - exact| / max(1, |exact|) of all outputs, bars and series. A value within 1.1e-16 is the
  nearest f64.
- *relative*: the largest |value - exact| / |exact| where |exact| is at least a thousandth of the output's largest.
- *apart*: bars not measured, because the value, or a decision before it, depends on the last digits: either engine is more
  than 1e-9 off, and the exact value or Trawl's moves by a tenth of that or more when the inputs are disturbed by 1e-13 of
  themselves (equal values stay equal).

Functions whose outputs are whole numbers alone (candle patterns, trend modes, indices) have no error to measure; they are
compared with TA-Lib by `just live`.

"""
# What tools/elementary_accuracy.py writes, at the page's end.
ELEMENTARY = "## Elementary functions\n"
TAIL = """
What remains, and why:

- Differences of averages (`apo`, `macd`, `macdext`, `macdfix`, `ao`, `ac`, `dpo`, `eri`, `trix`, `fosc`): each average is
  rounded to f64, at a price of 1e6 by up to 6e-11. Where prices move by ticks of 1e-4 their difference is of the order of a
  tick, so that its *relative* error is large while its error is a few units in the last place of the price. TA-Lib's is the
  same or larger. `avgdev` is taken from such a mean.
- `cci` divides a difference to a mean by a mean deviation: at 1e6 and ticks of 1e-4 both are made of a typical price that is
  itself rounded. Disturbed by 1e-13 the exact value moves as much: those bars are *apart*.
- `adosc` is a difference of averages of a running total of volume: its error is that of the total, 1e-16 of it.
- `stochrsi` and `smi` divide by ranges that go to 0 where nothing moves; `mama`, the `ht_` functions and whatever
  averages with `matype=7` (`stoch`, `macdext`) depend on the phase of a price, which is not determined on flat bars.
- `correl` is exactly 1 of a series with itself and never beyond 1 or -1.
"""
COLUMNS = ("function", "golden: error", "relative", "TA-Lib: error", "stress: error", "relative", "TA-Lib: error", "apart")


@dataclass
class Errors:
    """The largest errors of one function over one kind of series."""

    ours: float = 0.0
    relative: float = 0.0
    theirs: float = 0.0
    apart: int = 0

    def take(self, ours, theirs, exact, apart):
        self.apart += int(apart.sum())
        kept = ~apart & numpy.isfinite(exact) & numpy.isfinite(ours) & numpy.isfinite(theirs)
        if not kept.any():
            return
        ours, theirs, exact = ours[kept], theirs[kept], exact[kept]
        self.ours = max(self.ours, compare.differences(ours, exact).max())
        self.theirs = max(self.theirs, compare.differences(theirs, exact).max())
        large = numpy.abs(exact) >= TINY_SHARE * numpy.abs(exact).max()
        large &= exact != 0.0
        if large.any():
            self.relative = max(self.relative, (numpy.abs(ours - exact)[large] / numpy.abs(exact)[large]).max())


def golden_series(name):
    with gzip.open(GOLDEN / f"{name}.input.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    names = [n for n in rows[0] if n not in ("i", "date")]
    return {n: numpy.array([float(row[n] or "nan") for row in rows]) for n in names}


def golden_jobs(functions):
    """(columns, cases) of each golden series."""
    declared = {f["name"]: f for f in functions}
    known = json.loads((GOLDEN / "functions.json").read_text())["functions"]
    jobs = {}
    for function in known:
        if function["name"].lower() not in declared:
            continue
        outputs = [o["name"] for o in declared[function["name"].lower()]["outputs"]]
        for case in function["cases"].values():
            made = cases.Case(function["name"].lower(), case["inputs"], case["params"], outputs)
            for name in case["series"]:
                jobs.setdefault(name, []).append(made)
    return [(golden_series(name), made) for name, made in jobs.items()]


def stress_jobs(functions):
    """(columns, cases) of one series of each family."""
    jobs = []
    for number, family in enumerate(series.FAMILIES):
        columns = series.of_family(numpy.random.default_rng([STRESS_SEED, number]), family, STRESS_BARS)
        made = []
        for function in functions:
            names = [s["name"] for s in function["series"]]
            fed = [{"real": "close", "real0": "close", "real1": "high"}.get(n, n) for n in names]
            fed = ["unit"] if function["name"] in cases.OF_UNIT else fed
            made.append(cases.Case(function["name"], fed, {}, [o["name"] for o in function["outputs"]]))
        jobs.append((columns, made))
    return jobs


def measure(programs, columns, made):
    """(function, [(ours, theirs, exact, apart) of each output that is not a whole number]) of each case."""
    with tempfile.TemporaryDirectory(prefix="trawl-accuracy-") as name:
        bench = Bench(*programs, pathlib.Path(name))
        bench.write(columns)
        ours, exact = bench.of_cases(made), bench.of_cases(made, [bench.reference])
        theirs = [case.reference(columns) for case in made]
        moved = [[numpy.zeros(len(x)) for x in outputs] for outputs in theirs]
        far = [[numpy.fmax(compare.differences(o, e), compare.differences(t, e)) for o, t, e in zip(*outputs)]
               for outputs in zip(ours, theirs, exact)]
        doubtful = [i for i, outputs in enumerate(far) if any((x > compare.TOLERANCE).any() for x in outputs)]
        for seed in range(1, DISTURBED_RUNS + 1):
            bench.write(series.disturbed(columns, compare.DISTURBANCE, seed))
            for program, before in ([bench.reference], exact), (None, ours):
                for i, other in zip(doubtful, bench.of_cases([made[i] for i in doubtful], program)):
                    for k, x in enumerate(other):
                        moved[i][k] = numpy.fmax(moved[i][k], compare.differences(x, before[i][k], exact[i][k]))
    found = []
    for i, case in enumerate(made):
        outputs = []
        for k in range(len(case.outputs)):
            if case.outputs[k] in WHOLE:
                continue
            apart = (far[i][k] > compare.TOLERANCE) & (moved[i][k] >= compare.MOVED_SHARE * far[i][k])
            outputs.append((ours[i][k], theirs[i][k], exact[i][k], apart))
        found.append((case.function, outputs))
    return found


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--trawl", default=str(ROOT / "target/ci/trawl"))
    arguments.add_argument("--reference", default=str(ROOT / "target/ci/examples/reference"))
    arguments.add_argument("--output", default=str(ROOT / "docs/accuracy.md"))
    arguments.add_argument("--jobs", type=int, default=os.cpu_count())
    options = arguments.parse_args()
    functions = cases.catalogue(options.trawl)
    table = {f["name"]: (Errors(), Errors()) for f in functions if any(o["name"] not in WHOLE for o in f["outputs"])}
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        programs = (options.trawl, options.reference)
        for kind, jobs in enumerate((golden_jobs(functions), stress_jobs(functions))):
            for done in [pool.submit(measure, programs, *job) for job in jobs]:
                for function, outputs in done.result():
                    for output in outputs:
                        table[function][kind].take(*output)
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * (len(COLUMNS) - 1)]
    for name, (golden, stress) in table.items():
        cells = [f"{x:.1e}" for e in (golden, stress) for x in (e.ours, e.relative, e.theirs)]
        lines.append(f"| `{name}` | {' | '.join(cells)} | {golden.apart + stress.apart} |")
    page = pathlib.Path(options.output)
    _, heading, rest = page.read_text().partition(ELEMENTARY) if page.exists() else ("", "", "")
    page.write_text(HEAD + "\n".join(lines) + "\n" + TAIL + (f"\n{heading}{rest}" if heading else ""))


if __name__ == "__main__":
    main()
