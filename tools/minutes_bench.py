"""A market of minutes that is larger than memory: what importing it and scanning it takes.

    just minutes [--symbols 1000] [--bars 500000] [--memory 1GiB] [--files 20] [--only-growth] [--scratch DIR] [--out FILE]

Parquet files of one symbol each are imported (`--memory` limits the import), then scanned by new processes, with the files dropped from the page
cache and warm. For each scan: the bytes that the plan needs (times, and values of the columns it reads, of the bars it needs), the bytes that came
from the disk, and the time in which the same number of bytes is read from the dataset's files by plain reads. Then smaller markets, from which the
exponents follow with which CPU time grows with symbols and with bars: of imports whose rows all stay in memory, and of imports whose rows all go to files.

Files beyond `--files` are links to earlier ones, so that the source takes little disk: an import reads them all the same.
Peaks of memory are those of the kernel (ru_maxrss). Times are of one machine and one run.
"""

import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "benches/jobs"))
import measure  # noqa: E402
from report import commit, processor  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
MINUTE_US = 60_000_000
BEGIN_US = 1_577_836_800_000_000
VALUE_BYTES = 8
# Name, condition, columns that it reads, newest bars that it needs; None for all of them.
SCANS = [
    ("golden cross", "within(crosses_above(sma(close, 50), sma(close, 200)), 3)", 1, 4096),
    ("rsi", "rsi(close, 14) < 30", 1, None),
    ("breakout on volume", "close > highest(high, 390)[1] and volume > 2 * sma(volume, 390)", 3, 4096),
    ("all columns", "adx(14) > 25 and mfi(14) > 50 and close > open", 5, None),
]
ROUNDS = 3
# CPU time may grow with at most this exponent.
EXPONENT_MAX = 1.05
# Memory of imports whose growth is measured: the rows of none of them fit, those of each do. With an amount between, the larger ones alone would
# write their rows to files, and the exponent would have that step in it.
GROWTH_MEMORY = {"import by files": "256MiB", "import in memory": "6GiB"}
# A scan may take so many times as long as reading what it needs.
READS_MAX = 2


def source(folder, symbols, bars, files):
    """One Parquet file for each symbol; the first `files` are different."""
    import numpy
    import pyarrow
    import pyarrow.parquet

    folder.mkdir(parents=True)
    chance = numpy.random.default_rng(1)
    times = BEGIN_US + MINUTE_US * numpy.arange(bars, dtype=numpy.int64)
    for number in range(symbols):
        file = folder / f"S{number:05}.parquet"
        if number >= files:
            file.symlink_to(f"S{number % files:05}.parquet")
            continue
        close = numpy.round(100 * numpy.exp(numpy.cumsum(chance.normal(0, 0.0005, bars))), 2)
        spread = numpy.round(chance.random((2, bars)), 2)
        opened = numpy.round(close + (spread[0] - spread[1]) / 2, 2)
        high, low = numpy.maximum(opened, close) + spread[0], numpy.minimum(opened, close) - spread[1]
        columns = {"time": pyarrow.array(times, pyarrow.timestamp("us", "UTC")), "open": opened, "high": high.round(2), "low": low.round(2),
                   "close": close, "volume": chance.integers(0, 10**5, bars)}
        pyarrow.parquet.write_table(pyarrow.table(columns), file, compression="zstd")


class Trawl:
    def __init__(self, program, scratch):
        self.program, self.scratch, self.root = program, scratch, scratch / "data"
        self.environment = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "TMPDIR")}

    def run(self, *arguments):
        return measure.run([self.program, *arguments, "--data-root", self.root], self.environment, self.scratch / "log")

    def imports(self, folder, dataset, memory):
        took = self.run("data", "import", folder, "--dataset", dataset, "--timeframe", "1m", "--calendar", "24/7", "--memory", memory, "--json")
        return {"wall_s": round(took["wall_s"], 1), "cpu_s": round(took["cpu_s"], 2), "resident_mb": round(took["resident_mb"]),
                "bytes": measure.bytes_of(self.root / dataset)}

    def scan(self, dataset, condition):
        return self.run("scan", "--quiet", "--dataset", dataset, "--where", condition, "--output", self.scratch / "answer.csv")

    def drop(self, dataset):
        measure.drop_from_cache(self.root / dataset)


def plain_reads(folder, wanted):
    """Seconds in which `cat` reads so many bytes of the files of bars from the disk, two files at once."""
    measure.drop_from_cache(folder)
    files = sorted((folder / "files").iterdir(), key=lambda file: -file.stat().st_size)
    largest, each = [file for file in files if file.suffix == ".arrow"], []
    count = max(1, min(len(largest), 64))
    for file in largest[:count]:
        each.append((file, min(wanted // count, file.stat().st_size)))
    reads = [f"head -c {size} {file} > /dev/null" for file, size in each]
    halves = [" ; ".join(reads[part::2]) for part in (0, 1)]
    took = measure.run(["sh", "-c", f"({halves[0] or ':'}) & ({halves[1] or ':'}) ; wait"], dict(os.environ), folder.parent / "log")
    return took["wall_s"], sum(size for _, size in each)


def scans(trawl, dataset, symbols, bars):
    entries = []
    for name, condition, columns, newest in SCANS:
        needed = symbols * min(bars, newest or bars) * (1 + columns) * VALUE_BYTES
        trawl.drop(dataset)
        cold = trawl.scan(dataset, condition)
        warm = [trawl.scan(dataset, condition) for _ in range(ROUNDS)]
        reads, read = plain_reads(trawl.root / dataset, needed)
        reads *= needed / max(read, 1)
        entry = {
            "scan": name, "where": condition, "needed_bytes": needed, "disk_bytes": cold["read_blocks"] * 512,
            "cold_s": round(cold["wall_s"], 3), "plain_reads_s": round(reads, 3),
            "warm_s": round(statistics.median(run["wall_s"] for run in warm), 3),
            "warm_cpu_s": round(statistics.median(run["cpu_s"] for run in warm), 3),
            "resident_mb": round(max(run["resident_mb"] for run in [cold, *warm])),
        }
        entry["cold_over_reads"] = round(entry["cold_s"] / entry["plain_reads_s"], 2)
        entry["disk_over_needed"] = round(entry["disk_bytes"] / needed, 2)
        entries.append(entry)
        print(f"{name:<20} cold {entry['cold_s']:8.2f} s, plain reads of what it needs {entry['plain_reads_s']:7.2f} s "
              f"({entry['cold_over_reads']:.2f}), from disk {entry['disk_bytes'] / 1e9:.2f} GB of {needed / 1e9:.2f} needed "
              f"({entry['disk_over_needed']:.2f}); warm {entry['warm_s']:.2f} s; {entry['resident_mb']} MB", flush=True)
    return entries


def growth(trawl, files, symbols, bars):
    """Exponents of CPU time in symbols and in bars, over a factor of four."""
    seconds = {}
    for name, (count, length) in {"base": (symbols, bars), "symbols": (4 * symbols, bars), "bars": (symbols, 4 * bars)}.items():
        folder = trawl.scratch / f"source-{name}"
        source(folder, count, length, files)
        seconds[name] = {}
        for job, memory in GROWTH_MEMORY.items():
            runs = []
            for _ in range(ROUNDS):
                shutil.rmtree(trawl.root / f"growth-{name}", ignore_errors=True)
                runs.append(trawl.imports(folder, f"growth-{name}", memory)["cpu_s"])
            seconds[name][job] = max(min(runs), 0.001)
        for scan, condition, *_ in SCANS:
            if scan in ("rsi", "all columns"):
                runs = [trawl.scan(f"growth-{name}", condition)["cpu_s"] for _ in range(2 * ROUNDS)]
                seconds[name][scan] = round(max(min(runs), 0.001), 3)
        shutil.rmtree(folder)
        shutil.rmtree(trawl.root / f"growth-{name}")
    exponents = {
        what: {job: round(math.log(seconds[what][job] / seconds["base"][job], 4), 3) for job in seconds["base"]} for what in ("symbols", "bars")
    }
    for what, found in exponents.items():
        print(f"growth with {what}: " + ", ".join(f"{job} {value:.2f}" for job, value in found.items()), flush=True)
    return {"from": {"symbols": symbols, "bars": bars}, "cpu_s": seconds, "exponents": exponents}


def main():
    arguments = argparse.ArgumentParser(prog="just minutes", description=__doc__.splitlines()[0])
    arguments.add_argument("--trawl", required=True, type=pathlib.Path)
    arguments.add_argument("--symbols", type=int, default=1000)
    arguments.add_argument("--bars", type=int, default=500_000)
    arguments.add_argument("--memory", default="1GiB", help="of the import [default: 1GiB]")
    arguments.add_argument("--files", type=int, default=20, help="different source files [default: 20]")
    arguments.add_argument("--only-growth", action="store_true", help="without the import and the scans of the large market")
    arguments.add_argument("--scratch", type=pathlib.Path, help="a folder on a disk with room for three times the dataset")
    arguments.add_argument("--out", type=pathlib.Path)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=options.scratch, prefix="trawl-minutes-") as folder:
        scratch = pathlib.Path(folder)
        trawl = Trawl(options.trawl.resolve(), scratch)
        taken, entries = None, []
        if not options.only_growth:
            source(scratch / "source", options.symbols, options.bars, options.files)
            taken = trawl.imports(scratch / "source", "minutes", options.memory)
            rows = options.symbols * options.bars
            print(f"import of {rows:,} rows with --memory {options.memory}: {taken['wall_s']} s, {taken['cpu_s']} CPU s, "
                  f"{taken['resident_mb']} MB, {taken['bytes'] / 1e9:.1f} GB", flush=True)
            entries = scans(trawl, "minutes", options.symbols, options.bars)
            shutil.rmtree(trawl.root / "minutes")
        grown = growth(trawl, options.files, max(1, options.symbols // 16), max(1000, options.bars // 8))
    document = {
        "benchmark": "minutes", "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), "commit": commit(ROOT),
        "machine": {"architecture": platform.machine(), "processor": processor(), "cores": len(os.sched_getaffinity(0))},
        "symbols": options.symbols, "bars": options.bars, "memory": options.memory, "import": taken, "scans": entries, "growth": grown,
    }
    if options.out:
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    over = [f"{what}, {job}: {value}" for what, found in grown["exponents"].items() for job, value in found.items() if value > EXPONENT_MAX]
    over += [f"{entry['scan']}: {entry['cold_over_reads']} times the reads" for entry in entries if entry["cold_over_reads"] > READS_MAX]
    for line in over:
        print(f"over its limit: {line}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
