"""What Trawl expects of a bucket, and what its data roots and results do with one."""

import concurrent.futures
import os
import pathlib
import re
import subprocess

from botocore.exceptions import ClientError
from processes import wait_for
from server import BUCKET
from stage import OUTPUT, logs

ROOT = pathlib.Path(__file__).resolve().parents[2]
DURABLE, DATASETS, SECURITY = "docs/durability.md", "docs/datasets.md", "docs/security.md"
# Names of one page of a listing, of Amazon's and of MinIO's.
PAGE = 1000
# Symbols of a dataset with more objects than a page, and bars of one whose groups are put in parts.
MANY_SYMBOLS, LONG_BARS = 40_000, 9_000
RACERS = 16
# MinIO's rules are whole days; objects are made older instead.
RULE_DAYS, AGED_DAYS = 1, 3
GONE_SECONDS = 30


def status(call, **arguments):
    """The HTTP status of a call of S3."""
    try:
        return call(Bucket=BUCKET, **arguments)["ResponseMetadata"]["HTTPStatusCode"]
    except ClientError as error:
        return error.response["ResponseMetadata"]["HTTPStatusCode"]


def tests(stage):
    """Trawl's own tests of buckets, of which CI runs most against a simulated server."""
    keys = stage.store.variables() | {"TRAWL_BUCKET_TEST": f"s3://{BUCKET}/tests", "TRAWL_MINIO": stage.programs["minio"]}
    environment = os.environ | keys | {"TRAWL_BIN": str(stage.programs["trawl"]), "TRAWL_ETCD": stage.programs["etcd"]}
    for words, claim in (
        (["--lib", "a_bucket_keeps_what_a_directory_keeps"], "a scan of 1,001 groups of results: put once, listed, read, deleted"),
        (["--test", "integration", "data_root::"], "a cluster on a store that refuses, cuts off, is slow and is away; imports and removals"),
    ):
        command = ["cargo", "test", "--locked", "--profile", "ci", "--workspace", *words]
        said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True).stdout
        counts = [tuple(map(int, found)) for found in re.findall(r"(\d+) passed; (\d+) failed", said)]
        passed, failed = (sum(numbers) for numbers in zip(*counts, strict=True)) if counts else (0, 1)
        (stage.folder / f"{words[0].strip('-')}.log").write_text(said)
        stage.claims.add("tests", claim, f"{passed} passed, {failed} failed", passed and not failed)


def conditional(stage):
    """A put that may only make an object."""
    client, claim = stage.store.client(), stage.claims.add
    put = lambda name, body: status(client.put_object, Key=name, Body=body, IfNoneMatch="*")
    codes = [put("probe/once", body) for body in (b"first", b"second")]
    kept = client.get_object(Bucket=BUCKET, Key="probe/once")["Body"].read()
    claim(
        DURABLE,
        "a second put with `If-None-Match: *` is refused, and the first content stays",
        f"{codes}, '{kept.decode()}'",
        codes == [200, 412] and kept == b"first",
    )
    with concurrent.futures.ThreadPoolExecutor(RACERS) as pool:
        codes = list(pool.map(lambda number: put("probe/race", str(number).encode()), range(RACERS)))
    told = ", ".join(f"{codes.count(code)} times {code}" for code in sorted(set(codes)))
    succeeded = codes.count(200) == 1 and set(codes) <= {200, 409, 412}
    claim(DURABLE, f"of {RACERS} such puts at once one succeeds", told, succeeded)


def pages(stage):
    """More objects than one page of a listing."""
    claim, minio, name, where = stage.claims.add, stage.store, "many", "close > open"
    stage.synth(name, MANY_SYMBOLS, 3)
    files = len(minio.keys(f"data/{name}/files/"))
    ended = stage.ran("data", "inspect", name, "--verify", cache="empty")
    verified = f"{files} objects, {PAGE} a page; exit code {ended.returncode}"
    claim(
        DATASETS,
        "a dataset of more objects than a page of a listing is verified from an empty cache",
        verified,
        files > PAGE and ended.returncode == 0,
    )
    said = stage.trawl("scan", "--dataset", name, "--where", where, *OUTPUT)
    stage.same(DATASETS, "its answer is that of a directory", said, stage.expected(name, where))
    # Files that no snapshot names: of an import that was killed, for instance.
    stray = [f"data/{name}/files/{number:064x}.arrow" for number in range(PAGE + 1)]
    with concurrent.futures.ThreadPoolExecutor(RACERS) as pool:
        list(pool.map(lambda key: minio.client().put_object(Bucket=BUCKET, Key=key, Body=b"stray"), stray))
    stage.trawl("data", "prune", name, "--keep", 1, "--grace", "0s")
    left = len(minio.keys(f"data/{name}/files/"))
    claim(
        DATASETS,
        "`data prune --grace 0s` deletes the files that no snapshot names, and no others",
        f"{len(stray)} of {files + len(stray)} deleted, {left} left",
        left == files,
    )
    stage.trawl("data", "rm", name, "--grace", "0s")
    left = minio.keys(f"data/{name}/")
    heads = [key for key in left if key.startswith(f"data/{name}/heads/")]
    claim(DATASETS, "`data rm --grace 0s` leaves nothing but heads", f"{len(left)} objects left", heads and heads == left)


def multipart(stage):
    """A file that is put in parts and fetched in parts."""
    claim, client, name = stage.claims.add, stage.store.client(), "long"
    stage.synth(name, 64, LONG_BARS)
    heads = [client.head_object(Bucket=BUCKET, Key=key) for key in stage.store.keys(f"data/{name}/files/")]
    # The tag of an object that was put in parts ends with their number.
    tags = [head["ETag"].strip('"') for head in heads]
    parts = [int(tag.rsplit("-", 1)[1]) for tag in tags if "-" in tag]
    largest = max(head["ContentLength"] for head in heads)
    told = f"{len(parts)} of {len(heads)} objects, in {parts} parts; the largest has {largest:,} bytes"
    claim(DATASETS, "files above 16 MiB are put in parts", told, parts and max(parts) > 1)
    said = stage.scan_alone(name, cache="empty")
    stage.same(DATASETS, "they are fetched in parts: the answer from an empty cache", said, stage.expected(name))
    left = client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
    claim(DATASETS, "no unfinished upload is left", f"{len(left)} left", not left)


def answers(stage):
    """Bars and results of a cluster that shares nothing else, and results that the bucket's own rules delete."""
    claim, minio, name = stage.claims.add, stage.store, "market"
    stage.synth(name, 500, 300)
    expected = stage.expected(name)
    cluster = stage.cluster("answers", minio.variables())
    said, _ = stage.scan(cluster, name)
    stage.same(DATASETS, "a coordinator and three workers share nothing but the bucket: the answer", said, expected)
    scan = re.search(r'"scan":\s*"([^"]+)"', cluster.command("scans", "list", "--json"))[1]
    prefix = f"results/answers/scans/{scan}/"
    stored = minio.keys(prefix)

    def given_again(what):
        stage.restart(cluster.coordinators[0])
        said = stage.without_bucket(cluster, "scans", "results", scan, *OUTPUT)[0]
        stage.same(DURABLE, what, said, expected)

    given_again("the next leader gives the answer from the bucket")
    rule = {"ID": "results", "Status": "Enabled", "Filter": {"Prefix": "results/"}, "Expiration": {"Days": RULE_DAYS}}
    client = minio.client()
    client.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration={"Rules": [rule]})
    aged = minio.age(prefix, AGED_DAYS)
    gone = lambda: all([status(client.head_object, Key=key) == 404 for key in stored])
    wait_for("the bucket's rule deletes them", gone, GONE_SECONDS)
    told = f"{aged} of {len(stored)} objects"
    claim(DURABLE, f"a rule of the bucket deletes results of {AGED_DAYS} days after {RULE_DAYS}", told, aged == len(stored) > 0)
    given_again("results that the bucket deleted are computed again: the answer")
    # An object that the rule has expired is not given, though it may still be listed.
    there = lambda: [key for key in minio.keys(prefix) if status(client.head_object, Key=key) == 200]
    young = there()
    given_again("the next leader gives what was stored again")
    # How many groups results are put into depends on when they came; an answer that is computed once more adds some.
    told = f"{len(young)} objects, {len(there())} after they were read"
    claim(DURABLE, "and are stored again", told, young == there() != [])
    client.delete_bucket_lifecycle(Bucket=BUCKET)
    stage.no_secret(SECURITY, logs(cluster))
    stage.end_cluster(cluster)
