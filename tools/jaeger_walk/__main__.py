#!/usr/bin/env python3
"""The walk of deploy/README.md on the real parts: clusters of the executable on loopback send their spans through the collector of
deploy/otelcol to Jaeger 2, and what the documentation says is looked up in Jaeger's API and in metrics. `just jaeger`.

    tools/jaeger_walk [--trawl TRAWL] [--only PART...] [--there] [--keep DIR] [--write]

Parts: walk (ten seconds), contents, sampling, long, outages (five minutes), weight; all of it takes ten minutes. Prints each claim with
what was seen. With --write the whole is kept in benches/results/jaeger-DATE.json, and its tables in docs/jaeger.md. Exit code 77: a
program that is needed cannot be had here, or, with --there, is not built yet.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# Processes of clusters are those of the other tool that runs real parts.
sys.path[:0] = [str(HERE), str(HERE.parent / "observability")]
import checks
import outages
import sampling
import waterfall
from claims import Claims, claims_table, show, table
from parts import ROOT
from stage import Stage

PARTS = ("walk", "contents", "sampling", "long", "outages", "weight")
PAGE, PICTURE = ROOT / "docs/jaeger.md", ROOT / "docs/jaeger-waterfall.svg"
AWAY_SECONDS = 60


def tool(name, there):
    found = subprocess.run(
        [ROOT / "tools" / f"get-{name}", *(["--there"] if there else [])], stdout=subprocess.PIPE, text=True
    )
    if found.returncode != 0:
        print(f"SKIPPED: no {name}: nothing was looked up in Jaeger", file=sys.stderr)
        sys.exit(77)
    return found.stdout.strip()


def version(command):
    said = subprocess.run(command, capture_output=True, text=True).stdout
    return re.search(r"v?(\d+\.\d+\.\d+)", said)[1]


def page(result, name):
    """What docs/jaeger.md says of a whole run."""
    parts = ", ".join(f"{part} {number}" for part, number in result["versions"].items())
    minutes = sum(result["seconds"].values()) / 60
    figures = result["figures"]
    weights = figures["scan_of_10000_symbols"].items()
    weights = [(way, f"{w['spans']:.0f}", f"{w['bytes']:,}", w["bytes_per_span"]) for way, w in weights]
    samplers = [(way, f"{f['spans']:,.0f}", f["kept"], f["slow_kept"]) for way, f in figures["sampling"].items()]
    away = figures["collector_away"]
    outages = [("collector killed", away["killed"]), ("collector stopped", away["frozen"])]
    outages.append(("Jaeger killed", figures["jaeger_away"]["scans"]))
    outages = [
        (what, f["scans"], f"{f['ratio']:.2f}", f"{f['command_more_seconds']:+.2f} s", f"{f.get('dropped', 0):,.0f}")
        for what, f in outages
    ]
    return (
        f"In {minutes:.0f} minutes, with {parts}; all figures are in `benches/results/{name}`.\n\n"
        + claims_table(result["claims"])
        + "\nOne scan of 10,000 symbols, as it leaves all processes by OTLP over gRPC:\n\n"
        + table(("Shards, compression", "Spans", "Bytes", "Bytes of a span"), weights)
        + f"\nThe same scans under each sampler, {sampling.FAST} quick ones and {sampling.SLOW} with a slowed worker:\n\n"
        + table(("Sampler", "Spans sent", "Quick ones kept", "Slow ones kept"), samplers)
        + "\nScans while a part is away, beside the same scans right before and after:\n\n"
        + table(("Away", "Scans", "Time at the coordinator, usual = 1", "The command", "Spans dropped"), outages)
    )


def write(result, trace):
    path = ROOT / f"benches/results/jaeger-{datetime.date.today().isoformat()}.json"
    path.write_text(json.dumps(result | {"trace": waterfall.summary(trace)}, indent=1) + "\n")
    PICTURE.write_text(waterfall.picture(trace, result["versions"]))
    show(PAGE, "just jaeger --write", page(result, path.name))
    print(f"wrote {path.relative_to(ROOT)}, {PAGE.relative_to(ROOT)} and {PICTURE.relative_to(ROOT)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trawl", default=ROOT / "target/ci/trawl", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", default=PARTS, choices=PARTS)
    parser.add_argument("--there", action="store_true", help="build no tool")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for logs, which is kept")
    parser.add_argument("--write", action="store_true", help="keep the result and write the table into docs/jaeger.md")
    given = parser.parse_args()
    if not given.trawl.is_file():
        sys.exit(f"there is no {given.trawl}: cargo build --profile ci -p trawl")
    programs = {"trawl": given.trawl.resolve(), "etcd": tool("etcd", False)}
    programs |= {name: tool(name, given.there) for name in ("otelcol", "jaeger")}
    folder = given.keep or pathlib.Path(tempfile.mkdtemp(prefix="trawl-jaeger-walk-"))
    folder.mkdir(parents=True, exist_ok=True)
    # Variables of the caller's own telemetry would reach every process here.
    for name in [n for n in os.environ if n.startswith("OTEL_")]:
        del os.environ[name]
    began, claims, trace = time.monotonic(), Claims(), None
    stage = Stage(programs, folder, claims)
    stage.synth("market", 2000, 200)
    run = {
        "contents": lambda: checks.contents(stage),
        "sampling": lambda: sampling.samplers(stage),
        "long": lambda: sampling.long_scans(stage),
        "outages": lambda: (outages.collector_away(stage, AWAY_SECONDS), outages.jaeger_away(stage, AWAY_SECONDS)),
        "weight": lambda: sampling.weight(stage),
    }
    seconds = {}
    try:
        stage.start(stage.jaeger)
        stage.start(stage.collector)
        for part in [p for p in PARTS if p in given.only]:
            print(f"- {part}", flush=True)
            at = time.monotonic()
            if part == "walk":
                trace = checks.readme_walk(stage)
            else:
                run[part]()
            seconds[part] = round(time.monotonic() - at)
    except (TimeoutError, OSError) as error:
        claims.add("this run", "it comes to its end", str(error), False)
    finally:
        stage.stop()
    wrong = claims.wrong()
    result = {
        "benchmark": "jaeger",
        "machine": {"architecture": platform.machine(), "cores": os.cpu_count()},
        "versions": {
            "Trawl": version([programs["trawl"], "--version"]),
            "the collector": version([programs["otelcol"], "--version"]),
            "Jaeger": version([programs["jaeger"], "version"]),
        },
        "seconds": seconds,
        "figures": stage.figures,
    }
    print(json.dumps(result, indent=1))
    result["claims"] = claims.rows
    if trace:
        (folder / "trace.json").write_text(json.dumps(trace))
    if given.write and set(given.only) == set(PARTS) and trace:
        write(result, trace)
    if not given.keep and not wrong:
        shutil.rmtree(folder, ignore_errors=True)
    logs = f"; logs in {folder}" if wrong or given.keep else ""
    print(f"jaeger: {len(claims.rows)} claims, {len(wrong)} wrong, {time.monotonic() - began:.0f} s{logs}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
