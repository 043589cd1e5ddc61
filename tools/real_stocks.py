#!/usr/bin/env python3
"""Real bars with their real faults: 257 stocks of the Philippine exchange, 2010 to 2021, from the package fastquant of PyPI.

    just real-stocks [--out FILE]

pip downloads the package (the file is checked by its hash, kept in target/real-stocks and never committed). Its table is imported, the faults are
counted by reason, `inspect --quality` is run, the bars are exported as a lake and imported again, and every daily scan of examples/ is run on them. Exit code 1 where something is refused,
a symbol fails, or a count differs from what was found when this was written. The table has turnover in pesos instead of volume; it is taken for volume, so the answers of scans that
use volume mean little. Sectors are those of the package; the scans' SPY is replaced by the exchange's largest stock.
"""

import argparse
import csv
import hashlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = "fastquant==0.1.8.1"
WHEEL = "fastquant-0.1.8.1-py3-none-any.whl"
SHA256 = "c7fac4401dba39ee237632025431f63cf5d207ee30a4857c4df6fa1f1316be97"
SYMBOLS = 257
# What was found: rows, bars, what is doubtful about them, and rows in quarantine by reason.
FOUND = {
    "rows": 538408,
    "bars": 538334,
    "sessions_without_bars": 121,
    "bars_without_session": 208,
    "gaps": 133813,
    "stale": 25,
    "jumps": 60,
    "quarantined": {"close outside low to high": 34, "negative volume": 2, "open outside low to high": 1, "zero or negative price": 37},
}
# The stock with the largest turnover, for scans that compare with an index.
LARGEST = "SM"


def wheel(folder):
    """The package, downloaded unless it is here."""
    file = folder / WHEEL
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE], check=True)
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != SHA256:
        sys.exit(f"{file} has the SHA-256 {found}, not {SHA256}: delete it and run this again")
    return zipfile.ZipFile(file)


def unpack(package, work):
    """The table of bars, and the table of sectors."""
    inner = zipfile.ZipFile(io.BytesIO(package.read("fastquant/data/merged_stock_data.zip")))
    [name] = inner.namelist()
    # A table with several columns for each symbol, named in two lines: as a line for each bar, cells as they are.
    lines = csv.reader(io.StringIO(inner.read(name).decode()))
    symbols, fields = next(lines), next(lines)
    columns = ["open", "high", "low", "close", "value"]
    with (work / "pse.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["date", "symbol", *columns])
        for line in lines:
            bars = {}
            for symbol, field, cell in list(zip(symbols, fields, line, strict=True))[1:]:
                bars.setdefault(symbol, {})[field] = cell
            table.writerows([line[0], symbol, *(bar[column] for column in columns)] for symbol, bar in bars.items() if any(bar.values()))
    rows = csv.DictReader(io.StringIO(package.read("fastquant/data/stock_table.csv").decode()))
    with (work / "sectors.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["symbol", "sector"])
        table.writerows(sorted({(row["Stock Symbol"], row["Sector"]) for row in rows}))


class Trawl:
    def __init__(self, program, work):
        self.program, self.work = pathlib.Path(program).resolve(), work

    def __call__(self, *words):
        began = time.monotonic()
        done = subprocess.run([self.program, *words, "--data-root", "data"], cwd=self.work, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"trawl {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr}")
        return done.stdout, time.monotonic() - began


def scans(trawl, work):
    """Every daily example on these bars: symbols that matched, by example."""
    found = {}
    for file in sorted((ROOT / "examples").glob("*.toml")):
        text = file.read_text()
        if "demo-1m" in text:
            continue
        (work / file.name).write_text(text.replace("SPY", LARGEST))
        trawl("scan", "--file", file.name, "--dataset", "pse", "--output", "answer.json", "--quiet")
        answer = json.loads((work / "answer.json").read_text())
        counts = answer["counts"]
        if counts["symbols"] != SYMBOLS or counts["failed"]:
            sys.exit(f"{file.name}: {counts}")
        found[file.stem] = counts["matched"]
    return found


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--trawl", required=True)
    options.add_argument("--out", type=pathlib.Path)
    options.add_argument("--folder", type=pathlib.Path, default=ROOT / "target/real-stocks", help="where the package is kept")
    args = options.parse_args()
    package = wheel(args.folder)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        unpack(package, work)
        trawl = Trawl(args.trawl, work)
        how = ["--timeframe", "1d", "--calendar", "XPHS", "--json"]
        text, seconds = trawl("data", "import", "pse.csv", "--dataset", "pse", "--map", "volume=value", "--symbols", "sectors.csv", *how)
        made = json.loads(text)
        quality = json.loads(trawl("data", "inspect", "pse", "--quality", "--json")[0])["quality"]
        print(trawl("data", "inspect", "pse", "--quality")[0][-4000:])
        trawl("data", "export", "pse", "--hive", "-o", "lake")
        again = json.loads(trawl("data", "import", "lake", "--dataset", "again", "--strict", *how)[0])
        report = {
            "rows": made["rows_read"], "bars": made["bars"], "symbols": made["symbols"], "import_s": round(seconds, 2), "quarantined": made["quarantined"],
            "sessions_without_bars": quality["sessions_without_bars"], "dates_without_session": quality["dates_without_session"],
            "bars_without_session": quality["bars_without_session"], "gaps": quality["gaps"], "stale": quality["stale"], "jumps": quality["jumps"],
            "scans": scans(trawl, work),
        }
    print(json.dumps(report, indent=1))
    if args.out:
        args.out.write_text(json.dumps(report, indent=1) + "\n")
    if made["symbols"] != SYMBOLS:
        sys.exit(f"{made['symbols']} symbols were imported, not {SYMBOLS}")
    for name, expected in FOUND.items():
        if report[name] != expected:
            sys.exit(f"{name}: {report[name]}, not {expected}")
    if again["bars"] != made["bars"]:
        sys.exit(f"the lake has {again['bars']} bars, not {made['bars']}")


main()
