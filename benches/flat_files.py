#!/usr/bin/env python3
"""Rows per CPU second of the import of Polygon's flat files, beside polars, which reads the same files, sorts them and writes them: each a new
process, in turn, in one run.

    benches/flat_files.py --trawl FILE --python PYTHON [--rows 10000000] [--rounds 3] [--scratch DIR] --out FILE

PYTHON has polars and pyarrow (benches/jobs/requirements.txt). Files are made once in the scratch folder: a day each, compressed, of 10,000
tickers. polars writes a plain file of each symbol's bars in order of time; a dataset has checksums and an index besides.
"""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent / "jobs"))
import measure
import report

TICKERS = 10_000
MAKE = """
import datetime, gzip, pathlib, sys
import numpy as np
import polars as pl
folder, days, tickers = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
chance, date = np.random.default_rng(1), datetime.date(2018, 1, 1)
names, close = [f"T{number:05}" for number in range(tickers)], np.full(tickers, 100.0)
while days:
    date += datetime.timedelta(1)
    if date.weekday() > 4:
        continue
    days -= 1
    close = np.maximum(np.round(close * (1 + chance.normal(0, 0.01, tickers)), 2), 1.0)
    rise = np.round(chance.uniform(0, 1, tickers), 2)
    start = int(datetime.datetime(date.year, date.month, date.day, 5, tzinfo=datetime.timezone.utc).timestamp()) * 10**9
    frame = pl.DataFrame({"ticker": names, "volume": chance.integers(1, 10**6, tickers), "open": close, "close": close, "high": np.round(close + rise, 2),
                          "low": np.round(close - rise, 2), "window_start": start, "transactions": 7})
    file = folder / f"day_aggs_v1/{date:%Y/%m}/{date}.csv.gz"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(frame.write_csv().encode(), 6, mtime=0))
"""
POLARS = """
import sys
import polars as pl
frame = pl.scan_csv(sys.argv[1] + "/**/*.csv.gz", schema_overrides={"volume": pl.Float64}).sort("ticker", "window_start").collect()
frame.write_ipc(sys.argv[2]) if sys.argv[2].endswith(".arrow") else frame.write_parquet(sys.argv[2])
print(frame.height)
"""


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--trawl", required=True, type=pathlib.Path)
    arguments.add_argument("--python", required=True, type=pathlib.Path)
    arguments.add_argument("--rows", type=int, default=10_000_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--scratch", type=pathlib.Path)
    arguments.add_argument("--out", required=True, type=pathlib.Path)
    options = arguments.parse_args()
    days = options.rows // TICKERS
    with tempfile.TemporaryDirectory(prefix="trawl-flat-") as made:
        scratch = options.scratch or pathlib.Path(made)
        files = scratch / f"flat-{days}"
        if not (files / "whole").exists():
            shutil.rmtree(files, ignore_errors=True)
            files.mkdir(parents=True)
            subprocess.run([options.python, "-c", MAKE, files, str(days), str(TICKERS)], check=True)
            (files / "whole").touch()
        root, log = scratch / "root", scratch / "log"
        flat = files / "day_aggs_v1"
        ways = {
            "trawl": [options.trawl, "data", "import", "polygon-flat", flat, "--dataset", "flat", "--calendar", "weekdays", "--data-root", root, "--json"],
            "polars, sorted, parquet": [options.python, "-c", POLARS, flat, scratch / "polars.parquet"],
            "polars, sorted, ipc": [options.python, "-c", POLARS, flat, scratch / "polars.arrow"],
        }
        runs = {name: [] for name in ways}
        for number in range(options.rounds + 1):
            for name, command in ways.items():
                shutil.rmtree(root, ignore_errors=True)
                used = measure.run(command, os.environ | {"TRAWL_BACKEND": "cpu"}, log)
                # The first round fills the caches of files.
                if number:
                    runs[name].append(used)
                print(f"{number} {name}: {used['wall_s']:.1f} s, {used['cpu_s']:.1f} s of CPU, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
                if name == "trawl" and (bars := json.loads(log.read_text())["import"]["bars"]) != days * TICKERS:
                    sys.exit(f"{bars} bars, not {days * TICKERS}")
    median = {name: {what: round(statistics.median(run[what] for run in of), 3) for what in ("wall_s", "cpu_s", "resident_mb")} for name, of in runs.items()}
    for of in median.values():
        of["rows_per_cpu_s"] = round(days * TICKERS / of["cpu_s"])
    best = min(of["cpu_s"] for name, of in median.items() if name != "trawl")
    found = {
        "benchmark": "flat-files",
        "date": datetime.date.today().isoformat(),
        "commit": report.commit(pathlib.Path(__file__).resolve().parent.parent),
        "machine": {"processor": report.processor(), "cores": os.cpu_count(), "load_at_the_end": round(os.getloadavg()[0], 1)},
        "rows": days * TICKERS,
        "files": days,
        "rounds": options.rounds,
        "ways": median,
        "times_the_best_peer_by_cpu": round(best / median["trawl"]["cpu_s"], 2),
    }
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
