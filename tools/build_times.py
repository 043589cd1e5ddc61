#!/usr/bin/env python3
"""What the programs of `just kubernetes` cost to build: each is built by its tools/get-* from its source with an empty cache of Go's and
into an empty folder, one after the other; modules that were downloaded before are used. `just build-times`.

    tools/build_times.py [--write] [NAME...]

Prints wall-clock and CPU seconds, the size of what was built and of the cache that it left. With --write, of all programs, the whole is
kept in benches/results/tool-builds-DATE.json, and its table in docs/kubernetes/tried.md. KEDA takes half an hour of one core.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools/observability"))
from claims import show, table

# What is built, and the words after tools/get-*.
PROGRAMS = {
    "kubernetes": ["kubernetes"],
    "runtime": ["kubernetes", "runtime"],
    **{name: [name] for name in ("coredns", "network-policies", "prometheus-adapter", "keda", "cert-manager", "minio", "registry")},
}
PAGE = ROOT / "docs/kubernetes/tried.md"


def bytes_of(folder):
    return sum(path.stat().st_size for path in pathlib.Path(folder).rglob("*") if path.is_file() and not path.is_symlink())


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def build(name):
    """One program in folders of its own, which are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="trawl-build-times-") as folder:
        cache, target = pathlib.Path(folder, "cache"), pathlib.Path(folder, "target")
        environment = os.environ | {"GOCACHE": str(cache), "CARGO_TARGET_DIR": str(target), "TRAWL_GO_JOBS": str(os.cpu_count())}
        # One that is on PATH would be taken instead.
        environment["PATH"] = ":".join(part for part in environment["PATH"].split(":") if not pathlib.Path(part, name).exists())
        script, *words = PROGRAMS[name]
        began, before = time.monotonic(), cpu_seconds()
        ended = subprocess.run([ROOT / f"tools/get-{script}", *words], env=environment, stdout=subprocess.PIPE, text=True)
        seconds, cpu = time.monotonic() - began, cpu_seconds() - before
        if ended.returncode != 0:
            sys.exit(f"tools/get-{script} ended with {ended.returncode}")
        sizes = {"mib": round(bytes_of(target) / 2**20), "cache_mib": round(bytes_of(cache) / 2**20)}
        return {"program": name, "seconds": round(seconds), "cpu_seconds": round(cpu), **sizes}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    unknown = set(given.names) - set(PROGRAMS)
    if unknown or (given.write and given.names):
        parser.error(f"expected some of {', '.join(PROGRAMS)}; --write is for all of them")
    rows = []
    for name in given.names or PROGRAMS:
        rows.append(build(name))
        print(json.dumps(rows[-1]), flush=True)
    head = ("Program", "Seconds", "CPU seconds", "MiB built", "MiB of Go's cache")
    text = table(head, [tuple(row.values()) for row in rows])
    print(text)
    if given.write:
        path = ROOT / f"benches/results/tool-builds-{datetime.date.today().isoformat()}.json"
        go = subprocess.run(["go", "version"], capture_output=True, text=True, check=True).stdout.split()[2]
        machine = {"architecture": platform.machine(), "cores": os.cpu_count()}
        path.write_text(json.dumps({"benchmark": "tool-builds", "machine": machine, "go": go, "programs": rows}, indent=1) + "\n")
        show(PAGE, "just build-times --write", f"Built with {go} on {os.cpu_count()} cores from an empty cache; modules were there already.\n\n{text}")


if __name__ == "__main__":
    main()
