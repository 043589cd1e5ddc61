"""How bars get into the volume of datasets: an import of the chart, and the pod of deploy/kubernetes/load-bars.yaml."""

import json
import re

import access
from processes import wait_for
from stage import NAMESPACE, OUTPUT, ROOT, UP_SECONDS, USER

PAGE = "docs/kubernetes/install.md"
MANIFEST = ROOT / "deploy/kubernetes/load-bars.yaml"


def imports(stage):
    """The import of docs/kubernetes/install.md, started by hand."""
    kubernetes = stage.kubernetes
    files = stage.volume("drop", "vendor-drop")
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "100Gi"}}, "volumeName": "drop", "storageClassName": ""}
    kubernetes.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "vendor-drop", "namespace": NAMESPACE}, "spec": claim})
    days = [f"2024-01-{day:02}" for day in range(2, 30)]
    rows = "".join(f"{day},{10 + n},{12 + n},{9 + n},{11 + n},1000\n" for n, day in enumerate(days))
    for symbol in ("AAA", "BBB"):
        (files / f"{symbol}.csv").write_text("Date,Open,High,Low,Close,Volume\n" + rows)
    more = {
        "import": {
            "enabled": True,
            "dataset": "imported",
            "sourceClaim": "vendor-drop",
            "arguments": ["--format=yahoo-csv", "/incoming"],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}},
        }
    }
    path = stage.folder / "import.json"
    path.write_text(json.dumps(more))
    stage.install("trawl", "--values", stage.values, "--values", path, verb="upgrade")
    kubernetes.do("kubectl", "--namespace", NAMESPACE, "create", "job", "by-hand", "--from=cronjob/trawl-import")
    state = lambda: kubernetes.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/by-hand").get("status", {})
    ended = wait_for("the import ends", lambda: {c["type"] for c in state().get("conditions", [])} & {"Complete", "Failed"}, UP_SECONDS)
    answer = stage.scan("imported", "close > open")
    log = kubernetes.ran("kubectl", "--namespace", NAMESPACE, "logs", "job/by-hand").stdout.strip().splitlines()
    stage.claims.add(
        PAGE,
        "an import writes a new snapshot, which scans see",
        f"the job is {ended.pop()} as user {USER}; {'both symbols match' if answer.stdout.count('match') else (answer.stderr + str(log))[-300:]}",
        "succeeded" in state() and "AAA" in answer.stdout and "BBB" in answer.stdout,
    )
    access.accounts(stage)
    load(stage)


def load(stage):
    """A dataset of this machine is copied as the manifest says, by the commands in it."""
    kubernetes, claim = stage.kubernetes, stage.claims.add
    text = MANIFEST.read_text()
    programs = {f"/usr/bin/{name}": f"/usr/bin/{name}" for name in ("sleep", "tar", "test", "mv")}
    kubernetes.images(**{re.search(r"image: (\S+)", text)[1]: {"files": programs, "user": 0}})
    local = {"TRAWL_DATA_ROOT": str(stage.folder / "local")}
    made = stage.ran("data", "synth", "--symbols", 50, "--bars", 60, "--dataset", "us-daily", variables=local)
    commands = re.findall(r"^#   kubectl (.*)$", text, re.M)
    for command in commands[:-1]:
        words = command.replace("./us-daily", str(stage.folder / "local/us-daily")).replace("deploy/", f"{ROOT}/deploy/").split()
        kubernetes.do("kubectl", *words)
    asked = ("scan", "--dataset", "us-daily", "--where", "close > sma(close, 20)", *OUTPUT)
    expected, answer = stage.ran(*asked, variables=local).stdout, stage.command(*asked, "--fresh")
    kubernetes.do("kubectl", *commands[-1].split())
    claim(
        str(MANIFEST.relative_to(ROOT)),
        "`kubectl cp` into the volume of datasets, by the pod that the manifest describes",
        f"{len(commands)} commands; a scan of the copied dataset has {'the bytes of one process' if answer.stdout == expected else answer.stderr[-300:] or 'other bytes'}",
        made.returncode == 0 and answer.stdout == expected and expected,
    )
