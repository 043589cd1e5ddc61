#!/usr/bin/env python3
"""The result store of docs/durability.md on a real server of objects: clusters of the executable on loopback keep their results in MinIO.

    tools/s3_walk [--trawl TRAWL] [--there] [--keep DIR]

Prints each claim with what was seen. Exit code 77: a program that is needed cannot be had here.
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
sys.path[:0] = [str(HERE), str(HERE.parent / "jaeger_walk"), str(HERE.parent / "observability")]
from parts import total
from processes import Cluster, Etcd, wait_for
from s3 import REGION, Minio, Role
from stage import CONDITION, Claims

ROOT = HERE.parents[1]
BUCKET, PREFIX, PAGE = "results", "some/where", "docs/durability.md"
UP_SECONDS, ETCD_QUOTA_BYTES = 60, 2 * 1024**3
# How long the server is away in the middle of a scan: less than puts are tried.
AWAY_SECONDS = 15
# A key is asked for again when it ends in less than five minutes: this one after ten seconds.
KEY_SECONDS = 310
WRONG = {"AccessKeyId": "nobody", "SecretAccessKey": "nothing", "Token": "none"}


class Walk:
    def __init__(self, programs, folder, claims):
        self.programs, self.folder, self.claims = programs, folder, claims
        self.minio = Minio(programs["minio"], folder, BUCKET)
        self.running, self.data = [], folder / "data"
        self.keys = {"AWS_ACCESS_KEY_ID": self.minio.user, "AWS_SECRET_ACCESS_KEY": self.minio.secret}

    def start(self, process):
        process.start()
        self.running.append(process)
        return process

    def stop(self):
        for process in reversed(self.running):
            process.stop()

    def cluster(self, name, results, coordinators=2, keys=None):
        folder = self.folder / name
        folder.mkdir()
        etcd = self.start(Etcd(self.programs["etcd"], folder, ETCD_QUOTA_BYTES))
        cluster = Cluster(name, folder, self.programs["trawl"], etcd, self.data, coordinators, 2)
        cluster.environment.update({"AWS_ENDPOINT_URL": self.minio.url, "AWS_REGION": REGION} | (keys or self.keys))
        if results:
            for process in cluster.coordinators:
                at = process.command.index("--results")
                process.command[at : at + 3] = ["--results", results]
        self.start(cluster)
        wait_for(f"{name} is up", lambda: all(f"w{n}" in cluster.command("workers") for n in (1, 2)), UP_SECONDS)
        return cluster

    def answer(self, cluster, *more):
        """The bytes of the answer, or what the command said instead."""
        path = cluster.folder / "answer.csv"
        path.unlink(missing_ok=True)
        said = cluster.command(
            "scan",
            "--dataset",
            "market",
            "--where",
            CONDITION,
            "--shards",
            "per-group",
            "--quiet",
            "--output",
            path,
            *more,
        )
        return path.read_bytes() if path.exists() else said

    def slow(self, cluster):
        """Workers sleep before each segment, so that something can happen in the middle of a scan."""
        for worker in cluster.workers:
            worker.stop()
            worker.start("--fault-delay-ms-per-segment", 500)
        wait_for("slow workers", lambda: all(f"w{n}" in cluster.command("workers") for n in (1, 2)), UP_SECONDS)

    def in_the_middle(self, cluster, happens):
        """The answer of a scan during which something happens, once the first results are stored."""
        before = len(self.minio.names(BUCKET))
        path = cluster.folder / "middle.csv"
        child = cluster.command(
            "scan",
            "--dataset",
            "market",
            "--where",
            CONDITION,
            "--shards",
            "per-group",
            "--quiet",
            "--output",
            path,
            wait=False,
        )
        wait_for("first results are stored", lambda: len(self.minio.names(BUCKET)) > before + 2, UP_SECONDS)
        happens()
        said = child.communicate(timeout=180)[0]
        return path.read_bytes() if path.exists() else said


def leader(cluster):
    """The coordinator that leads, by its own metric."""

    return next(
        (c for c in cluster.coordinators if c.child and total(f"http://{c.metrics}/metrics", "trawl_leader") == 1), None
    )


def refusals(walk):
    """What a coordinator says that may not, or whose bucket does not exist."""
    cases = [
        ("a wrong secret", f"s3://{BUCKET}/x", {"AWS_SECRET_ACCESS_KEY": "another-secret"}),
        ("a bucket that does not exist", "s3://nowhere/x", {}),
    ]
    etcd = walk.start(Etcd(walk.programs["etcd"], walk.folder, ETCD_QUOTA_BYTES))
    for name, address, more in cases:
        environment = {"PATH": os.environ["PATH"], "TRAWL_ETCD_ENDPOINTS": etcd.url, "TRAWL_DATA_ROOT": str(walk.data)}
        environment |= {"AWS_ENDPOINT_URL": walk.minio.url, "AWS_REGION": REGION} | walk.keys | more
        command = [walk.programs["trawl"], "coordinator", "--results", address, "--listen", "127.0.0.1:0"]
        try:
            ran = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, timeout=90)
            said, code = (ran.stderr.strip().splitlines() or ["nothing"])[-1], ran.returncode
        except subprocess.TimeoutExpired:
            said, code = "it runs", None
        secret = any(value in said for key, value in (walk.keys | more).items() if "SECRET" in key)
        walk.claims.add(
            PAGE,
            f"a coordinator with {name} does not start, and says which store",
            f"exit code {code}: {said[:200]}",
            code not in (0, None) and address.split("/x")[0] in said and not secret,
        )


def run(walk):
    claim, minio = walk.claims.add, walk.minio
    walk.start(minio)
    wait_for("MinIO is ready", minio.ready, UP_SECONDS)
    once = {"if-none-match": "*"}
    first, second = (minio.call("PUT", f"/{BUCKET}/conditional", "", body, **once)[0] for body in (b"one", b"two"))
    claim(
        PAGE,
        "MinIO supports conditional puts (`If-None-Match: *`)",
        f"{first}, then {second}",
        (first, second) == (200, 412),
    )
    refusals(walk)

    plain = walk.cluster("directory", None)
    expected = walk.answer(plain)
    plain.stop()
    cluster = walk.cluster("bucket", f"s3://{BUCKET}/{PREFIX}")
    got = walk.answer(cluster)
    names = minio.names(BUCKET, PREFIX)
    claim(
        PAGE,
        "two coordinators keep results in `s3://BUCKET/PREFIX`: the bytes of a directory's",
        f"{len(got)} bytes, {len(names)} objects",
        got == expected,
    )
    kept = [name for name in names if name.startswith(f"{PREFIX}/scans/")]
    claim(
        PAGE,
        "objects are `scans/{scan}/g{generation}/...` under the prefix; the probe is deleted",
        kept[0] if kept else names,
        kept and len(kept) == len(names),
    )
    scan = kept[0].removeprefix(f"{PREFIX}/scans/").split("/")[0]
    again = cluster.folder / "again.csv"
    cluster.coordinators[0].kill()
    cluster.coordinators[1].kill()
    for process in cluster.coordinators:
        process.start()
    wait_for("a leader", lambda: leader(cluster), UP_SECONDS)
    wait_for(
        "the result after a restart",
        lambda: cluster.command("scans", "results", scan, "--quiet", "--output", again) is not None and again.exists(),
        30,
    )
    claim(
        PAGE,
        "an answer is kept: after a restart of both coordinators `trawl scans results` has it",
        f"{again.stat().st_size} bytes",
        again.read_bytes() == expected,
    )

    walk.slow(cluster)
    got = walk.in_the_middle(cluster, lambda: leader(cluster).kill())
    claim(
        PAGE,
        "a coordinator dies: the next leader reads the objects and ends the scan",
        f"{len(got)} bytes, the same" if got == expected else got[-200:],
        got == expected,
    )
    for process in cluster.coordinators:
        process.start() if not process.child else None
    wait_for("a leader", lambda: leader(cluster), UP_SECONDS)

    def away():
        minio.kill()
        time.sleep(AWAY_SECONDS)
        minio.start()

    got = walk.in_the_middle(cluster, away)
    claim(
        PAGE,
        f"the store is away for {AWAY_SECONDS} s in the middle of a scan: puts are tried again",
        f"{len(got)} bytes, the same" if got == expected else got[-200:],
        got == expected,
    )
    cluster.stop()

    # Keys that end, from an address that hands out new ones.
    role = Role(minio.temporary(), KEY_SECONDS)
    token = walk.folder / "token"
    token.write_text("of this run")
    keys = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": role.url, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token)}
    cluster = walk.cluster("role", f"s3://{BUCKET}/role", 1, keys)
    asked = role.asked
    good = [walk.answer(cluster) == expected]
    time.sleep(KEY_SECONDS - 300 + 2)
    role.keys = minio.temporary()
    good.append(walk.answer(cluster) == expected)
    claim(
        PAGE,
        "keys of the machine's role that end are asked for again, while scans go on",
        f"{asked} requests for the first scan, {role.asked} after new keys",
        all(good) and role.asked > asked,
    )
    role.keys = WRONG
    time.sleep(KEY_SECONDS - 300 + 2)
    refused = walk.answer(cluster, "--deadline", "20")
    role.keys = minio.temporary()
    time.sleep(KEY_SECONDS - 300 + 2)
    works = wait_for("scans work with the next keys", lambda: walk.answer(cluster) == expected, 60)
    said = refused[-160:] if isinstance(refused, str) else "an answer"
    claim(
        PAGE,
        "with wrong keys in between scans fail, and work again with the next",
        said,
        isinstance(refused, str) and works,
    )
    role.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trawl", default=ROOT / "target/ci/trawl", type=pathlib.Path)
    parser.add_argument("--there", action="store_true", help="build no tool")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for logs, which is kept")
    given = parser.parse_args()
    programs = {"trawl": given.trawl.resolve()}
    for name in ("etcd", "minio"):
        found = subprocess.run(
            [ROOT / "tools" / f"get-{name}", *(["--there"] if given.there and name == "minio" else [])],
            stdout=subprocess.PIPE,
            text=True,
        )
        if found.returncode != 0:
            print(f"SKIPPED: no {name}: no real store was tried", file=sys.stderr)
            sys.exit(77)
        programs[name] = found.stdout.strip()
    folder = given.keep or pathlib.Path(tempfile.mkdtemp(prefix="trawl-s3-walk-"))
    folder.mkdir(parents=True, exist_ok=True)
    claims, began = Claims(), time.monotonic()
    walk = Walk(programs, folder, claims)
    make = [
        given.trawl,
        "data",
        "synth",
        "--symbols",
        2000,
        "--bars",
        200,
        "--dataset",
        "market",
        "--data-root",
        walk.data,
    ]
    subprocess.run(list(map(str, make)), check=True, capture_output=True)
    try:
        run(walk)
    except (TimeoutError, OSError, subprocess.TimeoutExpired) as error:
        claims.add("this run", "it comes to its end", str(error), False)
    finally:
        walk.stop()
    wrong = [row for row in claims.rows if not row["holds"]]
    if not given.keep and not wrong:
        shutil.rmtree(folder, ignore_errors=True)
    logs = f"; logs in {folder}" if wrong or given.keep else ""
    print(f"s3: {len(claims.rows)} claims, {len(wrong)} wrong, {time.monotonic() - began:.0f} s{logs}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
