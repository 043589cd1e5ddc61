"""The result as a file of benches/results and as a table."""

import datetime
import importlib.metadata
import os
import pathlib
import platform
import statistics
import subprocess

PACKAGES = ("polars", "polars-talib", "duckdb", "TA-Lib", "numpy", "pandas", "pyarrow", "vectorbt", "numba")


def processor():
    """The model's name, without trade marks and clocks."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.split(":", 1)[1] for line in lines if line.startswith("model name")]
    words = models[0].split("@")[0] if models else ""
    for noise in ("(R)", "(TM)", " CPU", " Processor"):
        words = words.replace(noise, "")
    flags = {flag for line in lines if line.startswith("flags") for flag in line.split()}
    vectors = next((name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags), None)
    return " ".join(words.split()) + (f" with {vectors}" if vectors else "") or platform.machine()


def versions():
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"python": platform.python_version(), **found}


def commit(repository):
    """The commit of the sources, with a sign where they have been changed since; of an executable from elsewhere it says nothing."""
    def git(*words):
        return subprocess.run(["git", "-C", repository, *words], capture_output=True, text=True).stdout.strip()

    return (git("rev-parse", "--short=7", "HEAD") or "unknown") + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")


def figures(library, way, runs, cold):
    """One way in the file: medians over its runs."""
    walls = [run["wall_s"] for run in runs]
    entry = {"library": library}
    if way:
        entry["way"] = way
    entry |= {
        "median_s": round(statistics.median(walls), 3),
        "min_s": round(min(walls), 3),
        "cpu_s": round(statistics.median(run["cpu_s"] for run in runs), 3),
        "resident_mb": round(statistics.median(run["resident_mb"] for run in runs)),
        "runs": len(runs),
    }
    if cold:
        entry["cold_median_s"] = round(statistics.median(run["wall_s"] for run in cold), 3)
        entry["cold_runs"] = len(cold)
    return entry


def ratio(ways, field="median_s"):
    """(best peer's way, its time over Trawl's), None where one is missing."""
    ours = [way[field] for way in ways if way["library"] == "trawl" and field in way]
    peers = [way for way in ways if way["library"] != "trawl" and field in way]
    if not ours or not peers:
        return None
    best = min(peers, key=lambda way: way[field])
    return best, best[field] / ours[0]


def of_job(job, what, ways, compared, stores):
    entry = {"job": job.name, "what": what}
    best = ratio(ways)
    if best:
        entry["best_peer"] = " ".join(filter(None, (best[0]["library"], best[0].get("way"))))
        entry["ratio"] = round(best[1], 3)
    cold = ratio(ways, "cold_median_s")
    if cold:
        entry["cold_ratio"] = round(cold[1], 3)
    for way in ways:
        way.update(compared.get(" ".join(filter(None, (way["library"], way.get("way")))), {}))
    entry |= {"required": job.required, "goal": job.goal, "stores": stores, "ways": ways}
    return {name: value for name, value in entry.items() if value not in (None, [], {})}


def document(jobs, settings, repository, missing):
    return {
        "benchmark": "jobs",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "commit": commit(repository),
        "machine": {"architecture": platform.machine(), "processor": processor(), "cores": len(os.sched_getaffinity(0))},
        "versions": versions(),
        "missing_peers": missing,
        "method": "each way a new process, in turn (A B C A B C), after one unmeasured run of each, whose answers were compared with "
        "Trawl's; wall clock from start to end, CPU seconds and peak resident memory (of the largest process) from wait4, page cache warm "
        "(cold: the files of the market dropped from it before each run); compare ratios within a job, not times",
        **settings,
        "jobs": jobs,
    }


def table(entry):
    """The lines of one job for people."""
    lines = ["", f"{entry['job']}: {entry['what']}"]
    cold = any("cold_median_s" in way for way in entry["ways"])
    lines.append(f"  {'':<40}{'median s':>10}{'min s':>9}{'CPU s':>9}{'RSS MB':>9}{'runs':>6}" + (f"{'cold s':>9}" if cold else ""))
    for way in sorted(entry["ways"], key=lambda way: (way["library"] != "trawl", way["median_s"])):
        name = " ".join(filter(None, (way["library"], way.get("way"))))
        line = f"  {name:<40}{way['median_s']:>10.3f}{way['min_s']:>9.3f}{way['cpu_s']:>9.2f}{way['resident_mb']:>9}{way['runs']:>6}"
        lines.append(line + (f"{way['cold_median_s']:>9.3f}" if "cold_median_s" in way else ""))
    for store in entry.get("stores", []):
        lines.append(f"  stored as {store['store']}: {store['bytes'] / 1e6:,.1f} MB, {store['wall_s']:.2f} s, {store['what']}")
    return lines


def summary(jobs):
    lines = ["", f"{'job':<20}{'trawl s':>10}{'best s':>10}{'ratio':>8}{'required':>10}{'goal':>6}  best peer"]
    for entry in jobs:
        if "ratio" not in entry:
            lines.append(f"{entry['job']:<20} no ratio: Trawl or every peer is missing")
            continue
        ours = next(way["median_s"] for way in entry["ways"] if way["library"] == "trawl")
        required, goal = (f"{entry[key]:g}" if key in entry else "-" for key in ("required", "goal"))
        missed = "  (missed)" if entry["ratio"] < entry.get("required", 0) else ""
        lines.append(f"{entry['job']:<20}{ours:>10.3f}{ours * entry['ratio']:>10.3f}{entry['ratio']:>8.2f}{required:>10}{goal:>6}  "
                     f"{entry['best_peer']}{missed}")
    return lines
