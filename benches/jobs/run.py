"""Whole jobs of users: Trawl and the libraries that they would take instead, in one run.

    run.py --trawl FILE [--quick] [--rounds N] [--jobs J1,sweep,...] [--cold] [--import-rows N] [--scratch DIR] [--out FILE]

Started by benches/jobs.sh, which makes the environment. Prints tables; keeps benches/results/jobs-DATE.json if all jobs ran whole, with at
least three rounds and equal answers, otherwise SCRATCH/jobs-DATE.json.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import contestants
import markets
import measure
import report

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
RESULTS = REPOSITORY / "benches/results"
# A file with medians of fewer runs is not kept.
ROUNDS_MIN = 3


def parse():
    arguments = argparse.ArgumentParser(prog="benches/jobs.sh", description="Whole jobs of users, Trawl beside other libraries")
    arguments.add_argument("--trawl", required=True, type=pathlib.Path, help="the executable")
    arguments.add_argument("--quick", action="store_true", help="small markets: shows that everything works, measures nothing")
    arguments.add_argument("--rounds", type=int, help="measured runs of each way [default: 5, with --quick 1]")
    arguments.add_argument("--jobs", help="only these, by key or name, with commas: " +
                           ", ".join(f"{job.key} ({job.name})" for job in contestants.JOBS))
    arguments.add_argument("--cold", action="store_true", help="measure each way also with its files dropped from the page cache")
    arguments.add_argument("--import-rows", type=int, help="rows of the imports [default: 10,000,000, with --quick 200,000]")
    arguments.add_argument("--scratch", type=pathlib.Path, default=REPOSITORY / "target/jobs", help="folder for markets and answers, "
                           "kept for the next run; at most some 15 GB")
    arguments.add_argument("--out", type=pathlib.Path, help="file for the result")
    options = arguments.parse_args()
    options.trawl = options.trawl.resolve()
    if not options.trawl.is_file():
        arguments.error(f"there is no executable {options.trawl}")
    options.rounds = options.rounds or (1 if options.quick else 5)
    wanted = options.jobs.split(",") if options.jobs else [job.key for job in contestants.JOBS]
    known = {key: job for job in contestants.JOBS for key in (job.key, job.name)}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        arguments.error(f"no job {', '.join(unknown)}")
    options.jobs = [job for job in contestants.JOBS if any(known[name] is job for name in wanted)]
    return options


def clean_environment(scratch):
    """The caller's, without what would change Trawl's or a peer's behaviour."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("TRAWL_", "OTEL_", "POLARS_", "OMP_", "NUMBA_", "PYTHON"))}
    return kept | {"PYTHONDONTWRITEBYTECODE": "1", "TRAWL_BACKEND": "cpu", "NUMBA_CACHE_DIR": str(scratch / "numba")}


class Contestant:
    """A way with its command; run(number) measures it once."""

    def __init__(self, job, way, folder, answers, options, environment):
        self.library, self.way = ("trawl", None) if way is None else (way.library, way.way)
        self.name = "trawl" if way is None else way.name
        stem = "".join(letter if letter.isalnum() else "-" for letter in self.name)
        self.answer = answers / (stem + ((way.suffix if way else None) or job.suffix))
        self.log = answers / f"{stem}.log"
        self.environment = environment
        self.imports = job.market.startswith("text ")
        text = folder / job.market.removeprefix("text ") if self.imports else None
        if way is None:
            replaced = {"{answer}": str(self.answer), "{file}": str(text)}
            root = self.answer if self.imports else folder / "trawl"
            self.command = [options.trawl, *(replaced.get(word, word) for word in job.trawl), "--data-root", root]
            if job.trawl[0] == "scan" and options.fresh:
                self.command.append("--fresh")
            self.files = text or root
        else:
            source = text or folder
            self.command = [sys.executable, contestants.PEERS / way.script, way.function, source, self.answer]
            self.files = text or folder / markets.FILES[way.store]
        self.runs, self.cold = [], []

    def once(self, cold=False):
        if self.answer.is_dir():
            shutil.rmtree(self.answer)
        self.answer.unlink(missing_ok=True)
        if cold:
            measure.drop_from_cache(self.files)
        return measure.run(self.command, self.environment, self.log)


def compare(job, folder, answers, racers, options, environment):
    """The report of compare.py, and its complaint or None."""
    files = {racer.name: str(racer.answer) for racer in racers}
    if job.market.startswith("text "):
        root, files["trawl"] = files["trawl"], str(answers / "trawl-export.parquet")
        subprocess.run([options.trawl, "data", "export", "imported", "--data-root", root, "--output", files["trawl"]], check=True,
                       env=environment, stdout=subprocess.DEVNULL)
    (answers / "answers.json").write_text(json.dumps(files))
    done = subprocess.run([sys.executable, HERE / "compare.py", job.name, folder, answers / "answers.json"], env=environment,
                          capture_output=True, text=True)
    if not done.stdout.strip():
        return {}, done.stderr.strip() or "compare.py wrote nothing"
    return json.loads(done.stdout), done.stderr.strip() if done.returncode else None


def run_job(job, options, environment, present, problems):
    sizes = {}
    if job.market.startswith("text "):
        rows = options.import_rows or contestants.IMPORT_ROWS[options.quick]
        folder, stores = markets.texts(options.scratch, rows, options.trawl, environment), []
        sizes["rows"] = f"{rows:,}"
    else:
        shape = contestants.MARKETS[job.market][options.quick]
        folder, stores = markets.market(options.scratch, shape, options.trawl, environment)
        sizes |= {"symbols": f"{shape[0]:,}", "bars": f"{shape[1]:,}"}
    answers = options.scratch / "answers" / job.name
    shutil.rmtree(answers, ignore_errors=True)
    answers.mkdir(parents=True)
    ways = [way for way in job.ways if all(present[module] for module in way.needs)]
    racers = [Contestant(job, way, folder, answers, options, environment) for way in [None, *ways]]

    def attempt(racer, cold=False):
        try:
            return racer.once(cold)
        except measure.Failed as failed:
            problems.append(f"{job.name}: {racer.name} failed: {failed}")
            print(f"benches/jobs.sh: {problems[-1]}", file=sys.stderr)
            return None

    before = measure.bytes_of(folder / "trawl")
    # Pages and compiled code are warm after this run, and its answers are compared.
    racers = [racer for racer in racers if attempt(racer)]
    if not any(racer.name == "trawl" for racer in racers):
        return None
    compared, complaint = compare(job, folder, answers, racers, options, environment)
    if complaint:
        problems.append(complaint)
        print(f"benches/jobs.sh: {complaint}", file=sys.stderr)
    derived = measure.bytes_of(folder / "trawl") - before
    if derived:
        stores = [*stores, {"store": "trawl, derived by a scan", "what": "in its first run", "wall_s": 0, "bytes": derived}]
    for _ in range(options.rounds):
        for racer in racers:
            racer.runs += filter(None, [attempt(racer)])
            if options.cold:
                cold = attempt(racer, cold=True)
                if cold and cold["read_blocks"] == 0:
                    print(f"benches/jobs.sh: {job.name}: the files of {racer.name} stayed in the page cache; not counted as cold",
                          file=sys.stderr)
                elif cold:
                    racer.cold.append(cold)
    figures = [report.figures(racer.library, racer.way, racer.runs, racer.cold) for racer in racers if racer.runs]
    for racer in racers:
        shutil.rmtree(racer.answer, ignore_errors=True)
    return report.of_job(job, job.what.format(**sizes), figures, compared, stores)


def said(*command):
    """What a command prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main():
    options = parse()
    options.scratch.mkdir(parents=True, exist_ok=True)
    environment = clean_environment(options.scratch.resolve())
    needed = sorted({module for job in options.jobs for way in job.ways for module in way.needs})
    present = {module: markets.has(module) for module in needed}
    missing = [module for module in needed if not present[module]]
    for module in missing:
        print(f"benches/jobs.sh: {module} is not installed: the ways that need it are LEFT OUT", file=sys.stderr)
    if not markets.has("polars"):
        sys.exit("benches/jobs.sh: polars stores the markets and compares the answers; without it nothing can be measured")
    # A scan is computed each time, also where the executable could give back an earlier answer.
    options.fresh = re.search(r"^\s*--fresh\b", said(options.trawl, "scan", "--help"), re.MULTILINE) is not None
    entries, problems = [], []
    for job in options.jobs:
        entry = run_job(job, options, environment, present, problems)
        if entry:
            entries.append(entry)
            print("\n".join(report.table(entry)), flush=True)
    print("\n".join(report.summary(entries)))
    settings = {"rounds": options.rounds, "trawl": said(options.trawl, "--version")}
    document = report.document(entries, settings, REPOSITORY, missing)
    whole = (len(entries) == len(contestants.JOBS) and not options.quick and options.rounds >= ROUNDS_MIN and not problems
             and options.import_rows in (None, contestants.IMPORT_ROWS[0]))
    name = f"jobs-{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}.json"
    file = options.out or (RESULTS if whole else options.scratch) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=1) + "\n")
    print(f"\nkept in {file}" + ("" if whole else " (not a whole run with equal answers: not in benches/results)"))
    if problems:
        sys.exit("\n".join(["", f"{len(problems)} problems:", *problems]))


if __name__ == "__main__":
    main()
