#!/usr/bin/env python3
"""The procedures of docs/etcd.md on a real etcd, while a real cluster runs scans: compaction, no space left, a snapshot and its restoration
on one member and on three. `just etcd-drill`.

    tools/etcd_drill [--trawl TRAWL] [--etcd ETCD] [--only PART...] [--keep DIR] [--write]

Prints each claim with what was seen. With --write its table is put into docs/etcd.md. Everything listens on loopback. Minutes.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Processes of clusters are those of the other tool that runs real parts.
sys.path[:0] = [str(HERE), str(HERE.parent / "observability")]
import drills
from claims import Claims, claims_table, show

PARTS = {
    "compaction": drills.compaction,
    "nospace": drills.nospace,
    "restore": drills.restore,
    "quorum": lambda *given: drills.restore(*given, members=3),
}
PAGE = ROOT / "docs/etcd.md"
SYMBOLS, BARS = 300, 200


def tool(*words):
    return subprocess.run([ROOT / "tools/get-etcd", *words], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def version(*command):
    said = subprocess.run(list(map(str, command)), capture_output=True, text=True).stdout
    return re.search(r"\d+\.\d+\.\d+", said)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trawl", default=ROOT / "target/ci/trawl", type=pathlib.Path)
    parser.add_argument("--etcd", help="another server than tools/get-etcd finds")
    parser.add_argument("--only", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--keep", type=pathlib.Path, help="folder for logs, which is kept")
    parser.add_argument("--write", action="store_true", help="write the table into docs/etcd.md")
    given = parser.parse_args()
    if not given.trawl.is_file():
        sys.exit(f"there is no {given.trawl}: cargo build --profile ci -p trawl")
    programs = {"trawl": given.trawl.resolve(), "etcd": given.etcd or tool(), "etcdctl": tool("etcdctl")}
    folder = given.keep or pathlib.Path(tempfile.mkdtemp(prefix="trawl-etcd-drill-"))
    folder.mkdir(parents=True, exist_ok=True)
    data, began, claims = folder / "data", time.monotonic(), Claims()
    make = [programs["trawl"], "data", "synth", "--symbols", SYMBOLS, "--bars", BARS, "--dataset", drills.DATASET, "--data-root", data]
    subprocess.run(list(map(str, make)), check=True, capture_output=True)
    for part in [name for name in PARTS if name in given.only]:
        print(f"- {part}", flush=True)
        try:
            PARTS[part](programs, folder / part, data, claims)
        except (TimeoutError, OSError) as error:
            claims.add(part, "it comes to its end", str(error)[-400:], False)
    wrong, seconds = claims.wrong(), time.monotonic() - began
    if given.write and not wrong and set(given.only) == set(PARTS):
        versions = f"In {seconds:.0f} s, with etcd {version(programs['etcd'], '--version')}, etcdctl {version(programs['etcdctl'], 'version')}.\n\n"
        show(PAGE, "just etcd-drill --write", versions + claims_table(claims.rows))
        print(f"wrote {PAGE.relative_to(ROOT)}")
    if not given.keep and not wrong:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"etcd-drill: {len(claims.rows)} claims, {len(wrong)} wrong, {seconds:.0f} s" + (f"; logs in {folder}" if wrong else ""))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
