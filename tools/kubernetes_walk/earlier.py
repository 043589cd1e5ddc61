"""From an earlier commit to this one: its chart and its executable are installed, then this chart and this executable, while its clients
scan. Clients of this release speak a newer protocol than that commit's coordinators."""

import csv
import io
import json
import pathlib
import subprocess
import tarfile
import tempfile
import time

from processes import wait_for
from stage import BARS, DELAY_MS, NAMESPACE, ROOT, SYMBOLS, Load, images

PAGE = "docs/kubernetes/upgrade.md"
COMMIT = "c7b7003"
ROLL_SECONDS = 300
# The coordinator's.
CLASS_PATIENCE_SECONDS = 60
# Made by the earlier executable. Both executables agree on the bits of this condition; their means differ by design.
DATASET = "early"
WHERE = "close >= highest(high, 20) or close <= lowest(low, 20)"


def earlier(stage):
    """Takes the place of the release before."""
    program = stage.kubernetes.programs["earlier"]
    packed = subprocess.run(["git", "archive", COMMIT, "helm/trawl"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(stage.folder / "earlier", filter="data")
    chart = stage.folder / "earlier/helm/trawl"
    # That chart has no `extraArgs`: its workers are slowed in this copy of it, so that scans run while pods are replaced.
    path = chart / "templates/worker/deployment.yaml"
    head, tail = path.read_text().split("args: [worker]")
    path.write_text(f'{head}args: [worker, --fault-delay-ms-per-segment, "{DELAY_MS}"]{tail}')
    table = images(program, stage.kubernetes.programs["etcd"])
    stage.kubernetes.images(**{name.replace(":0.1.0", ":earlier"): row for name, row in table.items() if ":0.1.0" in name})
    made = [str(program), "synth", "--symbols", str(SYMBOLS), "--bars", str(BARS), "--dataset", DATASET]
    subprocess.run(made, env=stage.environment(), check=True, capture_output=True)
    stage.uninstall()
    path = stage.folder / "earlier.json"
    chosen = json.loads(stage.values.read_text()) | {"image": {"registry": "localhost", "tag": "earlier"}}
    # That chart has neither.
    del chosen["worker"]["extraArgs"], chosen["coordinator"]["http"]
    path.write_text(json.dumps(chosen))
    seconds, _ = stage.install("trawl", "--values", path, chart=chart)
    alone, first = rows(scan(stage, program)), rows(scan(stage, program, stage.address))
    stage.claims.add(
        PAGE,
        f"the chart and the executable of {COMMIT} on this Kubernetes",
        f"ready after {seconds:.0f} s; a scan has {len(first)} rows, {'those' if first == alone else 'others than those'} of one process",
        first == alone and alone,
    )
    before = set(stage.pods("coordinator")) | set(stage.pods("worker"))
    with Load(stage, alone, scan=lambda: scan(stage, program, stage.address), read=rows) as load:
        wait_for("scans run", lambda: load.spans, ROLL_SECONDS)
        began = time.monotonic()
        seconds, _ = stage.install("trawl", "--values", stage.values, verb="upgrade")
        wait_for("old pods are gone", lambda: not before & set(stage.pods()), ROLL_SECONDS)
        ended = time.monotonic()
        after = len(load.spans)
        wait_for("scans go on", lambda: len(load.spans) >= after + 2, ROLL_SECONDS)
    # Those that ran when the first pod was asked to end or until the last was gone.
    across = [end - start for start, end in load.spans if start < ended and end > began]
    answer = scan(stage, stage.trawl, stage.address)
    present = rows(answer)
    tags = {pod["spec"]["containers"][0]["image"].rsplit(":", 1)[1] for pod in stage.pods("worker").values() if "deletionTimestamp" not in pod["metadata"]}
    stage.figures["earlier_upgrade_seconds"] = round(seconds, 1)
    stage.claims.add(
        PAGE,
        f"`helm upgrade` from {COMMIT} to this chart and executable, while clients of {COMMIT} scan",
        f"{seconds:.0f} s for {len(before)} pods; {load.said().replace('equal bytes', 'the same rows')}, {len(across)} of them ran while pods were replaced, "
        f"the longest {max(across, default=0):.1f} s; now {sorted(tags)}; a client of this release gets "
        + ("the same rows" if present == alone else f"{len(present)} other rows: {answer.stderr.strip()[-300:]}"),
        load.right() and across and tags == {"0.1.0"} and present == alone,
    )
    logs = stage.kubernetes.do("kubectl", "--namespace", NAMESPACE, "logs", "--selector=app.kubernetes.io/component=coordinator", "--tail=-1")
    anew = sum("begins a scan anew" in line and "it ran in class" in line for line in logs.splitlines())
    stage.claims.add(
        PAGE,
        "a recorded scan whose class has lost its last worker waits a minute for one, then begins anew in the other class",
        f"{anew} scans did, and are among those that took the longest",
        anew and max(across) > CLASS_PATIENCE_SECONDS,
    )


def scan(stage, program, address=None):
    """A scan by an executable, in its process or by the cluster."""
    words = ["scan", "--dataset", DATASET, "--where", WHERE, "--select", "close", "--quiet"]
    words += ["--coordinator", address, "--insecure"] if address else []
    environment = stage.environment() | {"TRAWL_FRESH": "1"}
    with tempfile.TemporaryDirectory(dir=stage.folder) as folder:
        path = pathlib.Path(folder, "answer.csv")
        ended = subprocess.run([str(program), *words, "--output", str(path)], env=environment, capture_output=True, text=True)
        ended.stdout = path.read_text() if path.exists() else ""
    return ended


def rows(ended):
    """What an answer says, without what releases say of themselves beside it; they print the same number with other digits."""
    found = csv.DictReader(line for line in ended.stdout.splitlines() if not line.startswith("#"))
    return sorted((row["symbol"], row["status"], row["close"] and float(row["close"])) for row in found)
