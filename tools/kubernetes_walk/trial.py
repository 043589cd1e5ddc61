"""The trial of docs/kubernetes/install.md: one command, `helm test`, a scan through the Service and through a forwarded port."""

import re
import socket
import subprocess
import time

import access
import policies
from processes import wait_for
from stage import CHART, NAMESPACE, OUTPUT, USER

PAGE = "docs/kubernetes/install.md"
VALUES = CHART / "ci/trial-values.yaml"
FORWARDED, FORWARD_SECONDS = 17400, 30


def trial(stage):
    claim, kubernetes = stage.claims.add, stage.kubernetes
    stage.volume("etcd", "etcd-trawl-etcd-0", "ReadWriteOnce", "1Gi")
    seconds, notes = stage.install("trawl", "--values", VALUES)
    stage.figures["trial_install_seconds"] = round(seconds, 1)
    pods = stage.pods()
    restarts = sum(c["restartCount"] for pod in pods.values() for c in pod["status"]["containerStatuses"])
    claim(
        PAGE,
        "`helm install --values ci/trial-values.yaml` gives one etcd, one coordinator and two workers",
        f"{len(pods)} pods ready after {seconds:.0f} s, {restarts} restarts",
        len(pods) == 4 and restarts == 0 and len(stage.registered()) == 2,
    )
    claim(
        PAGE,
        "pods meet the standard `restricted`",
        f"admitted in a namespace that enforces it; containers of user {USER}",
        all(pod["spec"]["securityContext"]["runAsUser"] == USER for pod in pods.values()),
    )
    claim(
        PAGE,
        "without a token for the Kubernetes API",
        f"{sum(mounts_token(pod) for pod in pods.values())} of {len(pods)} pods mount one",
        not any(map(mounts_token, pods.values())),
    )
    claim(PAGE, "the notes after the installation say that it is a trial", "NOT FOR PRODUCTION" in notes, "NOT FOR PRODUCTION" in notes)
    tested = stage.kubernetes.ran("helm", "--namespace", NAMESPACE, "test", "trawl", "--logs")
    asked = re.search(r"- scan((?:\n +- --.*)+)", stage.helm("get", "hooks", "trawl"))[1]
    asked = [line.strip()[2:] for line in asked.strip().splitlines()]
    alone = stage.ran("scan", *[a for a in asked if not a.startswith(("--coordinator", "--deadline"))])
    rows = [line for line in alone.stdout.splitlines() if line and not line.startswith(("#", "scanned", "answer"))]
    found = [row for row in rows if row.rstrip() in tested.stdout]
    claim(
        PAGE,
        "`helm test` scans the dataset `demo` through the coordinator and prints the answer",
        f"exit code {tested.returncode}, {len(found)} of {len(rows)} lines as one process prints them "
        + ("" if tested.returncode == 0 else tested.stderr[-200:]),
        tested.returncode == 0 and rows and len(found) == len(rows),
    )
    arguments = ("scan", "--dataset", "demo", "--where", "close > sma(close, 20)", *OUTPUT)
    expected, answer = stage.ran(*arguments).stdout, stage.command(*arguments, "--fresh")
    claim(
        PAGE,
        "a scan through the Service has the bytes of one process",
        f"{len(answer.stdout)} bytes, {'equal' if answer.stdout == expected else answer.stderr.strip()[-200:] or 'different'}",
        answer.stdout == expected and expected,
    )
    forwarded(stage, arguments, expected)
    seconds, _ = stage.install("trawl", "--values", VALUES, "--set", "log=debug", verb="upgrade")
    answer = stage.command(*arguments, "--fresh")
    claim(
        PAGE,
        "`helm upgrade` of a trial that replaces its coordinator and workers",
        f"ready after {seconds:.0f} s; a scan has {'equal bytes' if answer.stdout == expected else answer.stderr.strip()[-200:] or 'other bytes'}",
        answer.stdout == expected and not set(pods) & {name for name in stage.ready("coordinator") + stage.ready("worker")},
    )
    access.accounts(stage)
    if policies.enforced(stage):
        policies.trial(stage)
    else:
        stage.claims.skip(PAGE, "the etcd of a trial: coordinators and workers reach it, nobody else", "no network-policies: tools/get-network-policies builds it")
    # The test's pod belongs to no release; it stays for its log.
    kubernetes.do("kubectl", "--namespace", NAMESPACE, "delete", "pod", "trawl-test")
    seconds = stage.uninstall()
    left = kubernetes.do("kubectl", "--namespace", NAMESPACE, "get", "all,configmaps,networkpolicies,poddisruptionbudgets", "--output", "name")
    left = [name for name in left.split() if "kube-root-ca.crt" not in name]
    claim(PAGE, "`helm uninstall` leaves nothing but claims", f"{len(left)} objects after {seconds:.0f} s", not left)
    kubernetes.do("kubectl", "--namespace", NAMESPACE, "delete", "persistentvolumeclaims", "--all")
    kubernetes.do("kubectl", "delete", "persistentvolumes", "--all")


def mounts_token(pod):
    return any("serviceAccountToken" in str(volume) for volume in pod["spec"].get("volumes", []))


def forwarded(stage, arguments, expected):
    command = [stage.kubernetes.programs["kubectl"], "--namespace", NAMESPACE, "port-forward", "service/trawl-coordinator"]
    command.append(f"{FORWARDED}:7400")
    with open(stage.folder / "port-forward.log", "wb") as log:
        child = subprocess.Popen(list(map(str, command)), env=stage.kubernetes.environment(), stdout=log, stderr=log)

    def listens():
        with socket.socket() as to:
            return to.connect_ex(("127.0.0.1", FORWARDED)) == 0

    try:
        wait_for("the port is forwarded", listens, FORWARD_SECONDS)
        time.sleep(0.5)
        answer = stage.ran(*arguments, "--fresh", "--coordinator", f"http://127.0.0.1:{FORWARDED}")
    finally:
        child.terminate()
        child.wait()
    stage.claims.add(
        "helm/trawl/templates/NOTES.txt",
        "a scan through `kubectl port-forward`",
        "equal bytes" if answer.stdout == expected else answer.stderr.strip()[-200:] or "other bytes",
        answer.stdout == expected,
    )
