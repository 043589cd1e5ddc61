#!/usr/bin/env python3
"""Data roots and results in a bucket of a real server of S3 (MinIO), and in a container of Azurite, Microsoft's emulator of Azure's: what the
documentation says, beside what was seen. `just s3`.

    tools/s3_walk [--trawl TRAWL] [--only PART...] [--there] [--keep DIR] [--write]

Parts: conditional, answers (these two take half a minute), pages, multipart, keys, identity, tests; azure (Azurite).
Prints each claim with what was seen. With --write its table is put into docs/durability.md. Everything listens on loopback. Exit code 77: no
server can be had here, or, with --there, none is there yet.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Processes of clusters are those of the other tools that run real parts.
sys.path[:0] = [str(HERE), str(HERE.parent / "observability")]
import azure
import credentials
import objects
from claims import Claims, claims_table, show
from server import Issuer, Minio
from stage import Stage

PARTS = {
    "conditional": objects.conditional,
    "answers": objects.answers,
    "pages": objects.pages,
    "multipart": objects.multipart,
    "keys": credentials.disabled_keys,
    "identity": credentials.web_identity,
    "tests": objects.tests,
    "azure": azure.azure,
}
# The server that a part needs, where it is not MinIO.
SERVERS = {"azure": azure.Azure.maker}
PAGE = ROOT / "docs/durability.md"


def tool(name, *options):
    """The path of a program; None where it cannot be had."""
    found = subprocess.run([ROOT / "tools" / f"get-{name}", *options], stdout=subprocess.PIPE, text=True)
    if found.returncode == 77:
        return None
    found.check_returncode()
    return found.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trawl", default=ROOT / "target/ci/trawl", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--there", action="store_true", help="build no tool")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for logs, which is kept")
    parser.add_argument("--write", action="store_true", help="write the table into docs/durability.md")
    given = parser.parse_args()
    if not given.trawl.is_file():
        sys.exit(f"there is no {given.trawl}: cargo build --profile ci -p trawl")
    asked = [part for part in PARTS if part in given.only]
    programs = {name: tool(name, *(["--there"] if given.there else [])) for name in {SERVERS.get(part, "minio") for part in asked}}
    parts = [part for part in asked if programs[SERVERS.get(part, "minio")]]
    for part in [part for part in asked if part not in parts]:
        print(f"SKIPPED: {part}: no {SERVERS.get(part, 'minio')} here", file=sys.stderr)
    if not parts:
        sys.exit(77)
    programs |= {"trawl": given.trawl.resolve(), "etcd": tool("etcd")}
    folder = given.keep or pathlib.Path(tempfile.mkdtemp(prefix="trawl-s3-walk-"))
    folder.mkdir(parents=True, exist_ok=True)
    # Variables of the caller's own bucket and telemetry would reach every process here.
    for name in [n for n in os.environ if n.startswith(("AWS_", "GOOGLE_", "AZURE_", "OTEL_", "TRAWL_DATA"))]:
        del os.environ[name]
    began, claims, issuer = time.monotonic(), Claims(), Issuer()
    minio = Minio(programs.get("minio"), folder, issuer)
    stage = Stage(programs, folder, claims, minio, issuer)
    try:
        if programs.get("minio"):
            stage.start(minio, minio.ready)
        for part in parts:
            print(f"- {part}", flush=True)
            PARTS[part](stage)
    except (TimeoutError, OSError, RuntimeError) as error:
        claims.add("this run", "it comes to its end", str(error), False)
    finally:
        stage.stop()
    wrong = claims.wrong()
    if given.write and set(parts) == set(PARTS) and not wrong:
        show(PAGE, "just s3 --write", claims_table(claims.rows))
        print(f"wrote {PAGE.relative_to(ROOT)}")
    if not given.keep and not wrong:
        shutil.rmtree(folder, ignore_errors=True)
    logs = f"; logs in {folder}" if wrong or given.keep else ""
    print(f"s3: {len(claims.rows)} claims, {len(wrong)} wrong, {time.monotonic() - began:.0f} s{logs}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
