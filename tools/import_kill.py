#!/usr/bin/env python3
"""An import that is killed at random points leaves the dataset as it was, and a second run gives the bytes of one that was never disturbed.

    tools/import_kill.py --trawl target/release/trawl [--points 50] [--rows 2000000] [--seed 1] [--job append]

The job is the import of bars of which the dataset has half, with other values for some; `append`, of a few dates that are later, to a dataset
that was appended to before; or `compact`, of that dataset. Each round begins with a dataset of the first half of the bars, starts the import of all of them (other values for some), kills it with
SIGKILL after a random time, and checks: every file of the old snapshot is as it was (`inspect --verify`), HEAD names the old snapshot or the
whole new one, and the data root holds nothing but the dataset. The import is then run again; the snapshot and each file that it names have to be those of the
undisturbed import. Half of the rounds give the import so little memory that its rows go to a file. Exit code 1 otherwise.
"""

import argparse
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

# Less than the rows below take, so that they are spilled.
LITTLE = "256MiB"


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
    def __init__(self, trawl, folder):
        self.trawl, self.folder = trawl, folder

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
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{what} ended with {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def verify(self, root):
        done = subprocess.run([self.trawl, "data", "inspect", "bars", "--verify", "--data-root", root], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"the dataset is damaged: {done.stdout}{done.stderr}")


def named_files(root):
    """The files that the newest snapshot names, with their digests, and its manifest's."""
    head = (root / "bars/HEAD").read_text().strip()
    manifest = root / f"bars/snapshots/{head}.json"
    text = json.loads(manifest.read_text())
    files, appended = {manifest}, text.get("appended", {"tails": []})
    for tail in appended["tails"]:
        files |= {root / f"bars/files/{tail['sha256']}.arrow", root / f"bars/files/{tail['index']}.tail"}
    if "base" in appended:
        base = root / f"bars/bases/{appended['base']}.json"
        files.add(base)
        text = json.loads(base.read_text())
    names = {entry["sha256"] for entry in text["files"]} | {text["times"]["sha256"]}
    files |= {root / f"bars/files/{name}.{ending}" for name in names for ending in ("arrow", "sums")}
    return {str(file.relative_to(root)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.exists()}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--trawl", required=True, type=pathlib.Path)
    arguments.add_argument("--points", type=int, default=50)
    arguments.add_argument("--rows", type=int, default=2_000_000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--job", choices=("import", "append", "compact"), default="import")
    options = arguments.parse_args()
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="trawl-import-kill-") as scratch:
        scratch = pathlib.Path(scratch)
        write_bars(scratch, options.rows, options.seed)
        importer = Importer(options.trawl.resolve(), scratch)
        before, whole = scratch / "before", scratch / "whole"
        old = importer.run(before, "half")["snapshot"]
        if options.job != "import":
            old = importer.run(before, "later")["snapshot"]
        shutil.copytree(before, whole)
        start = time.perf_counter()
        new = importer.finish(importer.job(whole, options.job), options.job)["snapshot"]
        seconds = time.perf_counter() - start
        wanted, old_files = named_files(whole), named_files(before)
        if new == old:
            sys.exit("both imports give one snapshot: nothing would be shown")
        killed = finished = 0
        for point in range(options.points):
            root = scratch / "root"
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(before, root)
            more = ["--memory", LITTLE] if point % 2 else []
            process = subprocess.Popen(importer.job(root, options.job, *more), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(chance.uniform(0, 1.5 * seconds))
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
            again = importer.finish(importer.job(root, options.job, *more), options.job)
            if again["snapshot"] != new or named_files(root) != wanted:
                sys.exit(f"point {point}: the second {options.job} differs from the undisturbed one")
    print(f"{options.points} runs of {options.job} of {seconds:.2f} s: {killed} killed, the others had ended; {finished} datasets had the new snapshot; "
          "each old snapshot whole, each second run the bytes of the undisturbed one")


if __name__ == "__main__":
    main()
