"""From an earlier release to this one: its chart and its executable are installed, then this chart and this executable, while scans run."""

import io
import json
import subprocess
import tarfile

from processes import wait_for
from stage import NAMESPACE, ROOT, Load, images

PAGE = "docs/kubernetes/upgrade.md"
COMMIT = "c7b7003"
ROLL_SECONDS = 300


def earlier(stage):
    """Takes the place of the release before."""
    program = stage.kubernetes.programs["earlier"]
    if not program:
        print(f"SKIPPED: no executable of {COMMIT}: tools/get-earlier builds it")
        return
    packed = subprocess.run(["git", "archive", COMMIT, "helm/trawl"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(stage.folder / "earlier", filter="data")
    chart = stage.folder / "earlier/helm/trawl"
    table = images(program, stage.kubernetes.programs["etcd"])
    stage.kubernetes.images(**{name.replace(":0.1.0", ":earlier"): row for name, row in table.items() if ":0.1.0" in name})
    stage.uninstall()
    path = stage.folder / "earlier.json"
    chosen = json.loads(stage.values.read_text()) | {"image": {"registry": "localhost", "tag": "earlier"}}
    # That chart had none: its workers are not slowed.
    del chosen["worker"]["extraArgs"]
    path.write_text(json.dumps(chosen))
    seconds, _ = stage.install("trawl", "--values", path, chart=chart)
    first = stage.scan()
    stage.claims.add(
        PAGE,
        f"the chart and the executable of {COMMIT} on this Kubernetes",
        f"ready after {seconds:.0f} s; a scan by this release's command has "
        + ("the bytes of one process of this release" if first.stdout == stage.expected else "other bytes " + first.stderr[-300:]),
        first.stdout == stage.expected,
    )
    before = set(stage.pods("coordinator")) | set(stage.pods("worker"))
    with Load(stage, stage.expected) as load:
        wait_for("scans run", lambda: load.seconds, ROLL_SECONDS)
        seconds, _ = stage.install("trawl", "--values", stage.values, verb="upgrade")
        wait_for("old pods are gone", lambda: not before & set(stage.pods()), ROLL_SECONDS)
        after = len(load.seconds)
        wait_for("scans go on", lambda: len(load.seconds) >= after + 2, ROLL_SECONDS)
    tags = {pod["spec"]["containers"][0]["image"].rsplit(":", 1)[1] for pod in stage.pods("worker").values() if "deletionTimestamp" not in pod["metadata"]}
    stage.figures["earlier_upgrade_seconds"] = round(seconds, 1)
    stage.claims.add(
        PAGE,
        f"`helm upgrade` from {COMMIT} to this chart and executable while scans run",
        f"{seconds:.0f} s for {len(before)} pods; {load.said()}; now {sorted(tags)}",
        load.right() and tags == {"0.1.0"},
    )
