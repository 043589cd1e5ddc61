#!/usr/bin/env python3
"""Where the CPU time of Trawl goes in whole jobs of users: shares of perf's samples by kind of work.

    profiles.py --trawl FILE [--scratch DIR] [--runs N] [--out FILE] [JOB ...]

The markets are those that `just bench jobs` made in SCRATCH (target/jobs). Needs perf. Shares are of samples whose function has a name;
they say what a job consists of, not how long it takes.
"""

import argparse
import datetime
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import contestants
import report

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
MARKETS = {"J1": "10000-1000-1d", "J4": "1000-2000-1d", "J6": "10000-2000-1d", "J8a": "500-100000-1m", "J8b": "500-100000-1m"}
# The first that matches a library and function.
KINDS = [
    ("reading files, in the kernel", r"_copy_to_iter|filemap_(read|get)|copy_page_to_iter|file_read|xas_|page_cache"),
    ("memory that is touched for the first time, in the kernel",
     r"clear_page|_fault|mmap|vma|madvise|alloc_pages|get_page_from|zap_|unmap|lru_|folio|memcg|pte|rmqueue|mas_"),
    ("starting the process", r"_dl_|ld-linux|do_lookup|check_match|execve|elf_"),
    ("checksums", r"twox|xxh|sha2"),
    ("laying bars for the vector units", r"strips::Workspace|transpose"),
    ("computing", r"pack_|simd::|::run::|executable::|cpu::|stage_run"),
    ("the manifest", r"serde_json|manifest|symbol_table|snapshot"),
    ("loading columns", r"::load|group_reader|read_runs|column_cache|Series"),
    ("the answer and its file", r"parquet|arrow|columns::|RowView|merge|Answer|csv|output|RowTable|step::StepRun"),
    ("allocating", r"_mi_|mi_|alloc|memset|RawVec"),
    ("copying and comparing memory", r"memmove|memcpy|memcmp"),
]


def parse():
    arguments = argparse.ArgumentParser(description="Where the CPU time of whole jobs goes")
    arguments.add_argument("--trawl", required=True, type=pathlib.Path, help="the executable")
    arguments.add_argument("--scratch", type=pathlib.Path, default=REPOSITORY / "target/jobs", help="folder with the markets")
    arguments.add_argument("--runs", type=int, default=20, help="runs of each job [default: 20]")
    arguments.add_argument("--out", type=pathlib.Path, help="file for the result [default: benches/results/profiles-DATE.json]")
    arguments.add_argument("jobs", nargs="*", metavar="JOB", help=f"of {', '.join(MARKETS)}")
    options = arguments.parse_args()
    unknown = [job for job in options.jobs if job not in MARKETS]
    if unknown:
        arguments.error(f"no job {', '.join(unknown)}: it is one of {', '.join(MARKETS)}")
    if not shutil.which("perf"):
        arguments.error("there is no perf on PATH")
    return options


def shares(command, runs, folder):
    """Shares of the samples of so many runs, in percent, by kind of work."""
    data = folder / "perf.data"
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    again = f"import subprocess\nfor _ in range({runs}): subprocess.run({command!r}, check=True, stdout=subprocess.DEVNULL)"
    record = ["perf", "record", "-q", "-F", "5000", "-o", data, "--", sys.executable, "-c", again]
    subprocess.run(record, check=True, stderr=subprocess.DEVNULL)
    # Without --no-inline perf runs addr2line for each sample.
    read = ["perf", "report", "-i", data, "--no-children", "--no-inline", "--sort", "comm,dso,symbol", "-F", "overhead,dso,symbol"]
    text = subprocess.run(read, check=True, capture_output=True, text=True, timeout=300).stdout
    found = {}
    for line in text.splitlines():
        # As in "1.25%  library  [k] function".
        words = line.split(None, 3)
        if len(words) < 4 or not words[0].endswith("%") or words[1].startswith(("python", "libpython")):
            continue
        percent, library, where, function = words[0][:-1], *words[1:]
        other = "the rest of the kernel" if where == "[k]" else "the rest"
        kind = next((kind for kind, pattern in KINDS if re.search(pattern, f"{library} {function}")), other)
        found[kind] = found.get(kind, 0) + float(percent)
    whole = sum(found.values())
    return {kind: round(100 * percent / whole, 1) for kind, percent in sorted(found.items(), key=lambda item: -item[1])}


def main():
    options = parse()
    jobs = {job.key: job for job in contestants.JOBS}
    date = datetime.date.today().isoformat()
    result = {
        "benchmark": "profiles", "date": date, "commit": report.commit(REPOSITORY), "runs": options.runs,
        "machine": {"processor": report.processor()}, "jobs": [],
        "method": "samples of perf, each job in processes of its own, page cache warm; shares by the function's name",
    }
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for key in options.jobs or MARKETS:
            job, market = jobs[key], MARKETS[key]
            symbols, bars, _ = market.split("-")
            arguments = [word.replace("{answer}", str(folder / f"answer{job.suffix}")) for word in job.trawl]
            root = options.scratch.resolve() / market / "trawl"
            if not root.is_dir():
                sys.exit(f"profiles.py: there is no {root}: 'just bench jobs --jobs {key}' makes it")
            command = [str(options.trawl.resolve()), *arguments, "--data-root", str(root), "--fresh"]
            found = shares(command, options.runs, folder)
            what = job.what.format(symbols=f"{int(symbols):,}", bars=f"{int(bars):,}", rows="")
            result["jobs"].append({"job": key, "what": what, "percent": found})
            print(f"{key}: {what}")
            for kind, percent in found.items():
                print(f"  {percent:5.1f} %  {kind}")
    out = options.out or REPOSITORY / f"benches/results/profiles-{date}.json"
    out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
