#!/usr/bin/env python3
"""An import that is killed at random points leaves the dataset as it was, and a second run gives the bytes of one that was never disturbed.

    tools/import_kill.py --trawl target/release/trawl [--points 50] [--rows 2000000] [--seed 1] [--job append]

The job is the import of bars of which the dataset has half, with other values for some; `append`, of a few dates that are later, to a dataset
that was appended to before; or `compact`, of that dataset. `flat`, `lake`, `flat-s3`, `lake-s3` and `rest` are imports of Polygon's flat files, of a
lake, of both from a bucket, and of minutes over HTTP, `grouped` and `listings` of all stocks by day over HTTP, with days that changed and with
tables of symbols, splits and dividends; `sources` is all of these in turns, with the points shared among them. Each round begins with a dataset of the first half of the bars, starts the import of all of them (other values for some), kills it with
SIGKILL after a random time (over HTTP: after a random number of answers), and checks: every file of the old snapshot is as it was (`inspect --verify`), HEAD names the old snapshot or the
whole new one, and the data root holds nothing but the dataset. The import is then run again; the snapshot and each file that it names have to be those of the
undisturbed import. Half of the rounds give the import so little memory that its rows go to a file. Exit code 1 otherwise.
"""

import argparse
import contextlib
import gzip
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import kill_sources

# Less than the rows below take, so that they are spilled.
LITTLE = "256MiB"
# Imports from vendors and lakes.
SOURCES = ("flat", "lake", "flat-s3", "lake-s3", "rest", "grouped", "listings")
# Longest wait for a server's answers before a process is killed.
PATIENCE_S = 60


def write_bars(folder, rows, seed):
    """Daily bars of symbols in files by date and by symbol, plain and compressed; the first folder has half of the dates."""
    chance = random.Random(seed)
    symbols = [f"S{number:04}" for number in range(700)]
    dates = [f"{2000 + day // 336}-{1 + day // 28 % 12:02}-{1 + day % 28:02}" for day in range(rows // len(symbols))]
    header = "date,symbol,open,high,low,close,volume\n"
    half = len(dates) // 2
    parts = (("half", dates[:half], 0), ("all", dates, 1), ("later", dates[half : half + 3], 0), ("latest", dates[half + 3 : half + 6], 0))
    for name, chosen, shift in parts:
        (folder / name).mkdir()
        third = len(chosen) // 3
        for number, part in enumerate((chosen[:third], chosen[third : 2 * third], chosen[2 * third :])):
            lines = []
            pairs = [(d, s) for d in part for s in symbols] if number != 1 else [(d, s) for s in symbols for d in part]
            for date, symbol in pairs:
                close = round(chance.uniform(10, 500), 2) + (shift if date.endswith("-07") else 0)
                lines.append(f"{date},{symbol},{close:.2f},{close + 1:.2f},{close - 1:.2f},{close:.2f},{chance.randrange(10**6)}\n")
            text = (header + "".join(lines)).encode()
            file = folder / name / f"part-{number}.csv{'.gz' if number == 2 else ''}"
            file.write_bytes(gzip.compress(text, 1) if number == 2 else text)


class Importer:
    """What runs the commands of a job."""

    def __init__(self, trawl, folder):
        self.trawl, self.folder, self.environment = trawl, folder, None

    def old(self, root, job):
        """Makes the dataset as it is before; returns its snapshot."""
        old = self.run(root, "half")["snapshot"]
        return old if job == "import" else self.run(root, "later")["snapshot"]

    def new(self, done):
        """The snapshot in what the job has printed."""
        return done["snapshot"]

    def wait(self, _chance, seconds, _process):
        """Until the job is to be killed."""
        time.sleep(seconds)

    def start(self, chance):
        """The next job is killed."""

    def restart(self):
        """The next job is not disturbed."""

    def measured(self):
        """The undisturbed job has ended."""

    def check_end(self):
        """After a job that was not disturbed."""

    def command(self, root, what, *more):
        return [self.trawl, "data", "import", self.folder / what, "--dataset", "bars", "--calendar", "24/7", "--json", "--data-root", root, *more]

    def job(self, root, job, *more):
        """The command that is killed."""
        if job == "compact":
            return [self.trawl, "data", "compact", "bars", "--json", "--data-root", root, *more]
        return self.command(root, "latest" if job == "append" else "all", *more)

    def run(self, root, what, *more):
        return self.finish(self.command(root, what, *more), what)

    def finish(self, command, what):
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment)
        if done.returncode:
            sys.exit(f"{what} ended with {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def verify(self, root):
        done = subprocess.run([self.trawl, "data", "inspect", "bars", "--verify", "--data-root", root], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"the dataset is damaged: {done.stdout}{done.stderr}")


class SourceImporter(Importer):
    """Imports from a source; what they fetch is kept in a folder until they end."""

    def __init__(self, trawl, folder, source):
        super().__init__(trawl, folder)
        self.source, self.cache = source, folder / "cache"
        self.environment = os.environ | source.environment | {"TRAWL_DATA_CACHE": str(self.cache)}
        self.answers = 0

    def old(self, root, _job):
        return self.new(self.finish([*self.source.before, "--data-root", root], "the import before"))

    def new(self, done):
        return (done.get("import") or done)["snapshot"]

    def job(self, root, _job, *more):
        return [*self.source.job, "--data-root", root, *more]

    def wait(self, chance, seconds, process):
        server = self.source.server
        if server is None:
            return time.sleep(seconds)
        end = time.monotonic() + PATIENCE_S
        while server.answers < server.left and process.poll() is None and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.05))

    def start(self, chance):
        """Before a job that is killed: nothing is fetched yet, and the server falls silent some time."""
        shutil.rmtree(self.cache, ignore_errors=True)
        if self.source.server:
            self.source.server.answers, self.source.server.left = 0, chance.randint(1, self.answers + 2)

    def restart(self):
        if self.source.server:
            self.source.server.answers, self.source.server.left = 0, None

    def measured(self):
        if self.source.server:
            self.answers = self.source.server.answers

    def check_end(self):
        left = [file for file in (self.cache / "inbox").rglob("*") if file.is_file()]
        if left:
            sys.exit(f"copies stay after the import: {left}")


def named_files(root):
    """The files that the newest snapshot names, with their digests, its manifest's, and what was noted of a vendor's files."""
    head = (root / "bars/HEAD").read_text().strip()
    manifest = root / f"bars/snapshots/{head}.json"
    text = json.loads(manifest.read_text())
    files, appended = {manifest, root / "bars/vendor.json"}, text.get("appended", {"tails": []})
    for tail in appended["tails"]:
        files |= {root / f"bars/files/{tail['sha256']}.arrow", root / f"bars/files/{tail['index']}.tail"}
    if "base" in appended:
        base = root / f"bars/bases/{appended['base']}.json"
        files.add(base)
        text = json.loads(base.read_text())
    names = {entry["sha256"] for entry in text["files"]} | {text["times"]["sha256"]}
    files |= {root / f"bars/files/{name}.{ending}" for name in names for ending in ("arrow", "sums")}
    for table in ("factors", "symbol_table", "attributes"):
        if text.get(table):
            files.add(root / f"bars/files/{text[table]['sha256']}.csv")
    return {str(file.relative_to(root)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.exists()}


def kill(importer, job, points, chance, scratch):
    """Kills a job at some points; returns what happened, in words."""
    before, whole = scratch / "before", scratch / "whole"
    old = importer.old(before, job)
    shutil.copytree(before, whole)
    start = time.perf_counter()
    importer.restart()
    new = importer.new(importer.finish(importer.job(whole, job), job))
    seconds = time.perf_counter() - start
    importer.measured()
    wanted, old_files = named_files(whole), named_files(before)
    old_files.pop("bars/vendor.json", None)
    if new == old:
        sys.exit("both imports give one snapshot: nothing would be shown")
    killed = finished = 0
    for point in range(points):
        root = scratch / "root"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(before, root)
        importer.start(chance)
        more = ["--memory", LITTLE] if point % 2 else []
        process = subprocess.Popen(importer.job(root, job, *more), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=importer.environment)
        importer.wait(chance, chance.uniform(0, 1.5 * seconds), process)
        process.send_signal(signal.SIGKILL)
        ended = process.wait() == 0
        head = (root / "bars/HEAD").read_text().strip()
        if head not in (old, new) or (ended and head != new):
            sys.exit(f"point {point}: HEAD is {head}, neither {old} nor {new}")
        if os.listdir(root) != ["bars"]:
            sys.exit(f"point {point}: the data root holds {os.listdir(root)}")
        for name, digest in old_files.items():
            if hashlib.sha256((root / name).read_bytes()).hexdigest() != digest:
                sys.exit(f"point {point}: {name} of the old snapshot has changed")
        importer.verify(root)
        killed, finished = killed + (not ended), finished + (head == new)
        importer.restart()
        importer.finish(importer.job(root, job, *more), job)
        if named_files(root) != wanted:
            sys.exit(f"point {point}: the second {job} differs from the undisturbed one")
        importer.check_end()
    return (
        f"{points} runs of {job} of {seconds:.2f} s: {killed} killed, the others had ended; {finished} datasets had the new snapshot; "
        "each old snapshot whole, each second run the bytes of the undisturbed one"
    )


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--trawl", required=True, type=pathlib.Path)
    arguments.add_argument("--points", type=int, default=50)
    arguments.add_argument("--rows", type=int, default=2_000_000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--job", choices=("import", "append", "compact", *SOURCES, "sources"), default="import")
    options = arguments.parse_args()
    chance, trawl = random.Random(options.seed), options.trawl.resolve()
    jobs = SOURCES if options.job == "sources" else (options.job,)
    for number, job in enumerate(jobs):
        # The points are shared out, the first jobs get those that are left.
        points = options.points // len(jobs) + (number < options.points % len(jobs))
        with tempfile.TemporaryDirectory(prefix="trawl-import-kill-") as scratch, contextlib.ExitStack() as servers:
            scratch = pathlib.Path(scratch)
            if job in SOURCES:
                store = []
                if job.endswith("-s3"):
                    store.append(kill_sources.Store(scratch))
                    servers.callback(store[0].stop)
                source = getattr(kill_sources, job.removesuffix("-s3"))(trawl, scratch, options.seed, *store)
                importer = SourceImporter(trawl, scratch, source)
            else:
                write_bars(scratch, options.rows, options.seed)
                importer = Importer(trawl, scratch)
            print(kill(importer, job, points, chance, scratch), flush=True)


if __name__ == "__main__":
    main()
