#!/usr/bin/env python3
"""What appending costs: bytes and time of each append, and how scans slow down with the number of appends.

    tools/append_bench.py --trawl target/release/trawl minutes [--symbols 10000] [--bars 190] [--appends 40]
    tools/append_bench.py --trawl target/release/trawl days [--symbols 2000] [--bars 250] [--appends 512] [--out benches/results/append-days-DATE.json]

`minutes` appends minutes to a dataset of minutes and prints the bytes and the milliseconds of each process.
`days` appends days to a dataset of days and compares scans of three datasets with the same bars, in turns: as appended, compacted, and imported
at once; their answers have to agree. It also prints the exponent with which time, CPU time and bytes of all appends grow with their number.
Times are of one machine and one run: compare their ratios. Where other programs run, CPU time says more.
"""

import argparse
import datetime
import json
import math
import pathlib
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benches/jobs"))
from report import commit, processor  # noqa: E402

HEADER = "time,symbol,open,high,low,close,volume\n"
SCAN = "close > ma(close, 50) and rsi(close, 14) > 50"


def rows(symbols, moment, chance):
    lines = []
    for number in range(symbols):
        close = chance.randrange(1000, 50000) / 100
        lines.append(f"{moment},S{number:05},{close:.2f},{close + 0.5:.2f},{close - 0.5:.2f},{close:.2f},{chance.randrange(10**6)}\n")
    return "".join(lines)


class Trawl:
    def __init__(self, program, root):
        self.program, self.root = program, root

    def run(self, *arguments):
        done = subprocess.run([self.program, *arguments, "--data-root", self.root], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, arguments))} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def add(self, file, dataset, timeframe):
        spent, text = self.timed("data", "import", file, "--dataset", dataset, "--calendar", "24/7", "--timeframe", timeframe, "--json")
        return spent, json.loads(text)

    def timed(self, *arguments):
        """Seconds and CPU seconds of a process, and what it printed."""
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        text = self.run(*arguments)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (time.perf_counter() - start, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime), text

    def bytes(self, dataset):
        """Bytes by inode: a second name of a file is not a second file."""
        files = {(s.st_ino): s.st_size for f in (self.root / dataset).rglob("*") if f.is_file() for s in [f.stat()]}
        return sum(files.values())

    def scans(self, datasets, repeats):
        """By dataset, scanned in turns: the least seconds and CPU seconds of a scan, and its answer."""
        spent, answers = {name: [] for name in datasets}, {}
        for _ in range(repeats):
            for name in datasets:
                one, answers[name] = self.timed("scan", "--where", SCAN, "--dataset", name, "--output", "-")
                spent[name].append(one)
        return {name: (min(s for s, _ in spent[name]), min(c for _, c in spent[name]), answers[name]) for name in datasets}


def append_all(trawl, options, folder, timeframe, moments, dataset):
    """Imports the first bars at once and the others one by one; seconds and bytes of each."""
    chance = random.Random(1)
    first = folder / "first.csv"
    with first.open("w") as file:
        file.write(HEADER)
        for moment in moments[: options.bars]:
            file.write(rows(options.symbols, moment, chance))
    trawl.add(first, dataset, timeframe)
    everything = folder / "everything.csv"
    first.rename(everything)
    costs = []
    for moment in moments[options.bars :]:
        text = rows(options.symbols, moment, chance)
        file = folder / "one.csv"
        file.write_text(HEADER + text)
        with everything.open("a") as all_bars:
            all_bars.write(text)
        before = trawl.bytes(dataset)
        (seconds, cpu), report = trawl.add(file, dataset, timeframe)
        costs.append((seconds, trawl.bytes(dataset) - before, report["files_written"], cpu))
    return everything, costs


def minutes(trawl, options, folder):
    begin = datetime.datetime(2024, 1, 2)
    moments = [(begin + datetime.timedelta(minutes=n)).strftime("%Y-%m-%dT%H:%M:%SZ") for n in range(options.bars + options.appends)]
    everything, costs = append_all(trawl, options, folder, "1m", moments, "minutes")
    own = options.symbols * 8 * 6
    one = [c for c in costs if c[2] == 1]
    merged = [c for c in costs if c[2] > 1]
    print(f"{options.symbols} symbols, base of {options.bars} minutes; own bytes of a minute (6 columns of 8 bytes): {own}, as CSV {everything.stat().st_size // len(moments)}")
    print(f"an append: {statistics.median(c[1] for c in one)} bytes = {statistics.median(c[1] for c in one) / own:.2f} times its own, "
          f"{1000 * statistics.median(c[0] for c in one):.0f} ms ({1000 * statistics.median(c[3] for c in one):.0f} of CPU) in the middle, "
          f"{1000 * max(c[0] for c in one):.0f} ms at most")
    for seconds, size, _, _ in merged:
        print(f"an append that merged: {size} bytes, {1000 * seconds:.0f} ms")
    print(f"all {len(costs)} appends: {sum(c[1] for c in costs) / own / len(costs):.2f} times their own bytes, {1000 * sum(c[0] for c in costs) / len(costs):.0f} ms each")
    return {
        "own_bytes": own,
        "append": {"bytes": statistics.median(c[1] for c in one), "s": statistics.median(c[0] for c in one), "max_s": max(c[0] for c in one)},
        "merging_appends": [{"bytes": size, "s": round(seconds, 4)} for seconds, size, _, _ in merged],
        "bytes_over_own": sum(c[1] for c in costs) / own / len(costs),
    }


def days(trawl, options, folder):
    begin = datetime.date(2020, 1, 1)
    moments = [str(begin + datetime.timedelta(days=n)) for n in range(options.bars + options.appends)]
    everything, costs = append_all(trawl, options, folder, "1d", moments, "days")
    figures = {"exponents": {}, "scans": {}}
    for what, of in (("seconds", 0), ("CPU seconds", 3), ("bytes", 1)):
        sums = {n: sum(c[of] for c in costs[:n]) for n in (options.appends // 4, options.appends // 2, options.appends)}
        counts = sorted(sums)
        exponents = [math.log(sums[b] / sums[a]) / math.log(b / a) for a, b in zip(counts, counts[1:])]
        figures["exponents"][what] = {"appends": counts, "sums": [sums[n] for n in counts], "exponents": exponents}
        print(f"{what} of {', '.join(map(str, sums))} appends: {', '.join(f'{s:.4g}' for s in sums.values())}; exponents {', '.join(f'{e:.3f}' for e in exponents)}")
    trawl.add(everything, "whole", "1d")
    shutil.copytree(trawl.root / "days", trawl.root / "compacted")
    (took, _), report = trawl.timed("data", "compact", "compacted", "--json")
    figures |= {"appended_files": json.loads(report)["appended_files"], "compacting_s": took}
    print(f"{figures['appended_files']} files of appended bars; compacted in {took:.2f} s")
    found = trawl.scans(["whole", "days", "compacted"], options.repeats)
    reference = found["whole"]
    for name, (seconds, cpu, answer) in found.items():
        what = {"whole": "imported at once", "days": "as appended"}.get(name, name)
        figures["scans"][what] = {"s": seconds, "cpu_s": cpu, "over_imported_at_once": seconds / reference[0], "cpu_over_imported_at_once": cpu / reference[1]}
        print(f"scan, {what}: {1000 * seconds:.1f} ms, {seconds / reference[0]:.3f} times; {1000 * cpu:.1f} ms of CPU, {cpu / reference[1]:.3f} times")
        if answer != reference[2]:
            sys.exit(f"the answer of '{what}' differs")
    ids = [json.loads(trawl.run("data", "inspect", name, "--json"))["snapshot"] for name in ("compacted", "whole")]
    print("the compacted snapshot has the id of the one that was imported at once" if ids[0] == ids[1] else f"the ids differ: {ids}")
    return figures


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--trawl", required=True, type=pathlib.Path)
    arguments.add_argument("what", choices=("minutes", "days"))
    arguments.add_argument("--symbols", type=int)
    arguments.add_argument("--bars", type=int)
    arguments.add_argument("--appends", type=int)
    arguments.add_argument("--repeats", type=int, default=11)
    arguments.add_argument("--scratch", type=pathlib.Path, help="where the data go [default: the folder of temporary files]")
    arguments.add_argument("--out", type=pathlib.Path, help="a file for the figures, as JSON")
    options = arguments.parse_args()
    usual = {"minutes": (10_000, 190, 40), "days": (2_000, 250, 512)}[options.what]
    options.symbols, options.bars, options.appends = (given or own for given, own in zip((options.symbols, options.bars, options.appends), usual))
    with tempfile.TemporaryDirectory(prefix="trawl-append-", dir=options.scratch) as scratch:
        scratch = pathlib.Path(scratch)
        trawl = Trawl(options.trawl.resolve(), scratch / "data")
        figures = {"minutes": minutes, "days": days}[options.what](trawl, options, scratch)
    if options.out:
        size = {key: getattr(options, key) for key in ("symbols", "bars", "appends")}
        head = {"date": str(datetime.date.today()), "commit": commit(ROOT), "processor": processor(), "what": options.what}
        options.out.write_text(json.dumps(head | size | figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
