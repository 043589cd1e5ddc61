"""Bars and results in a bucket of a real server of S3 (MinIO): nothing is shared by pods but its address."""

import contextlib
import datetime
import hashlib
import hmac
import json
import os
import urllib.request

import policies
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


def put(key, body):
    """An object of the bucket, signed as S3 asks for it (version 4 of Amazon's signatures)."""
    now, region, host = datetime.datetime.now(datetime.timezone.utc), "us-east-1", f"{GATEWAY}:{PORT}"
    day, at, digest = f"{now:%Y%m%d}", f"{now:%Y%m%dT%H%M%SZ}", hashlib.sha256(body).hexdigest()
    signed = "host;x-amz-content-sha256;x-amz-date"
    headers = f"host:{host}\nx-amz-content-sha256:{digest}\nx-amz-date:{at}\n"
    asked = f"PUT\n/{BUCKET}/{key}\n\n{headers}\n{signed}\n{digest}"
    scope = f"{day}/{region}/s3/aws4_request"
    secret = f"AWS4{SECRET}".encode()
    text = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{hashlib.sha256(asked.encode()).hexdigest()}"
    for word in (*scope.split("/"), text):
        secret = hmac.digest(secret, word.encode(), "sha256")
    sign = f"AWS4-HMAC-SHA256 Credential={USER}/{scope}, SignedHeaders={signed}, Signature={secret.hex()}"
    more = {"Authorization": sign, "x-amz-content-sha256": digest, "x-amz-date": at}
    urllib.request.urlopen(urllib.request.Request(f"http://{host}/{BUCKET}/{key}", body, more, method="PUT"), timeout=30).close()


def imported(stage, values):
    """Files of bars in a bucket become a dataset in a bucket; the import's own policy lets it there."""
    kubernetes = stage.kubernetes
    rows = "".join(f"2024-01-{day:02},{day},{day + 2},{day - 1},{day + 1},1000\n" for day in range(2, 30))
    put("drop/AAA.csv", ("Date,Open,High,Low,Close,Volume\n" + rows).encode())
    path = stage.folder / "bucket-import.json"
    words = ["--format=yahoo-csv", f"s3://{BUCKET}/drop"]
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}
    path.write_text(json.dumps({"import": {"enabled": True, "dataset": "imported", "arguments": words, "resources": resources}}))
    stage.install("trawl", "--values", values, "--values", path, verb="upgrade")
    kubernetes.do("kubectl", "--namespace", NAMESPACE, "create", "job", "first", "--from=cronjob/trawl-import")
    state = lambda: kubernetes.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/first").get("status", {})
    wait_for("the import ends", lambda: {c["type"] for c in state().get("conditions", [])} & {"Complete", "Failed"}, UP_SECONDS)
    answer = stage.command("scan", "--dataset", "imported", "--where", "close > open", *OUTPUT)
    log = kubernetes.ran("kubectl", "--namespace", NAMESPACE, "logs", "job/first").stdout
    stage.claims.add(
        "docs/kubernetes/install.md",
        "an import from a bucket into a bucket, at once by `kubectl create job`",
        "its symbol matches" if "AAA" in answer.stdout else (answer.stderr + log)[-300:],
        "succeeded" in state() and "AAA" in answer.stdout,
    )


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
        "data": {"kind": "bucket", "bucket": at | {"url": f"s3://{BUCKET}/bars", "cacheBytes": 268435456}},
        "results": {"bucket": at | {"url": f"s3://{BUCKET}/results"}},
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
    imported(stage, path)
    if policies.enforced(stage):
        to = {"bucket": (GATEWAY, PORT), "the API server": (GATEWAY, policies.API), "DNS": (policies.DNS, -53)}
        found, right = policies.reached(policies.one(stage, "worker"), to), {"bucket", "DNS"}
        claim("docs/kubernetes/install.md", "NetworkPolicies: with `data.kind: bucket` workers reach the bucket and DNS", policies.said(found, right), found == right)
    logs = kubernetes.do("kubectl", "--namespace", NAMESPACE, "logs", "--selector=app.kubernetes.io/part-of=trawl", "--tail=-1")
    claim(PAGE, "no key of the bucket is in a log", f"{logs.count(SECRET)} found", SECRET not in logs)
