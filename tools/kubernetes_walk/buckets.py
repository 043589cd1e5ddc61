"""Bars and results in a bucket of a real server of S3 (MinIO): nothing is shared by pods but its address."""

import contextlib
import json
import os
import urllib.request

from network import GATEWAY
from processes import Process, wait_for
from stage import BARS, NAMESPACE, OUTPUT, SYMBOLS, UP_SECONDS

PAGE = "helm/trawl/ci/bucket-values.yaml"
PORT, BUCKET, USER, SECRET = 9100, "market-data", "trawl-root", "only-of-this-test"


def start_minio(stage):
    drive = stage.folder / "drive"
    (drive / BUCKET).mkdir(parents=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MINIO_"))}
    environment |= {"MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off"}
    command = [stage.kubernetes.programs["minio"], "server", "--address", f"{GATEWAY}:{PORT}", drive]
    process = Process("minio", stage.folder / "minio.log", command, environment)
    process.start()
    stage.kubernetes.processes.append(process)

    def ready():
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"http://{GATEWAY}:{PORT}/minio/health/ready", timeout=5).status == 200

    wait_for("MinIO answers", ready, UP_SECONDS)
    return drive / BUCKET


def bucket(stage):
    """Takes the place of the release before."""
    kubernetes, claim = stage.kubernetes, stage.claims.add
    stage.uninstall()
    drive = start_minio(stage)
    # MinIO has no certificate here, and is another machine to pods.
    region = {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://{GATEWAY}:{PORT}", "AWS_ALLOW_HTTP": "true"}
    keys = {"AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": SECRET}
    literals = [f"--from-literal={name}={value}" for name, value in keys.items()]
    kubernetes.do("kubectl", "--namespace", NAMESPACE, "create", "secret", "generic", "bucket-keys", *literals)
    at = {"environment": region, "existingSecret": "bucket-keys"}
    chosen = json.loads(stage.values.read_text()) | {
        "data": {"kind": "s3", "s3": at | {"url": f"s3://{BUCKET}/bars", "cacheBytes": 268435456}},
        "results": {"s3": at | {"url": f"s3://{BUCKET}/results"}},
    }
    path = stage.folder / "bucket.json"
    path.write_text(json.dumps(chosen))
    there = region | keys
    words = ("data", "synth", "--symbols", SYMBOLS, "--bars", BARS, "--dataset", "market", "--data-root", f"s3://{BUCKET}/bars")
    made = stage.ran(*words, variables=there)
    if made.returncode != 0:
        raise RuntimeError(made.stderr)
    seconds, _ = stage.install("trawl", "--values", path)
    pods = stage.pods().values()
    claims = [v for pod in pods for v in pod["spec"]["volumes"] if "persistentVolumeClaim" in v]
    answer = stage.scan()
    claim(
        PAGE,
        "bars and results in a bucket: no volume is shared",
        f"ready after {seconds:.0f} s, {len(claims)} claims of volumes in {len(pods)} pods; a scan of {SYMBOLS} symbols has "
        + ("the bytes of one process" if answer.stdout == stage.expected else f"other bytes, {len(answer.stdout)}, exit code {answer.returncode}: {answer.stderr[-300:]}"),
        not claims and answer.stdout == stage.expected,
    )
    submitted = stage.command("scan", "--dataset", "market", "--where", "close > sma(close, 20)", "--fresh", "--detach")
    scan = submitted.stdout.split()[-1]
    done = lambda: stage.command("scans", "status", scan, "--json").stdout
    wait_for("it is done", lambda: '"done"' in done(), UP_SECONDS)
    objects = sum(file.is_dir() and (file / "xl.meta").exists() for file in (drive / "results").rglob("*"))
    read = lambda: stage.command("scans", "results", scan, *OUTPUT).stdout
    before, old = read(), set(stage.pods("coordinator"))
    kubernetes.do("kubectl", "--namespace", NAMESPACE, "rollout", "restart", "deployment/trawl-coordinator")
    kubernetes.do("kubectl", "--namespace", NAMESPACE, "rollout", "status", "deployment/trawl-coordinator", f"--timeout={UP_SECONDS}s")
    wait_for("old coordinators are gone", lambda: not old & set(stage.pods("coordinator")), UP_SECONDS)
    after = wait_for("a new leader answers", read, UP_SECONDS)
    claim(
        PAGE,
        "an answer is read from the bucket by coordinators that did not make it",
        f"{objects} objects below results/, every coordinator replaced, {len(after)} bytes, {'the same' if after == before else 'others'}",
        after == before and before and objects,
    )
    logs = kubernetes.do("kubectl", "--namespace", NAMESPACE, "logs", "--selector=app.kubernetes.io/part-of=trawl", "--tail=-1")
    claim(PAGE, "no key of the bucket is in a log", f"{logs.count(SECRET)} found", SECRET not in logs)
