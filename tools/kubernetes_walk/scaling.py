"""A release with an etcd of its own and shared volumes: workers join and leave while scans run, nodes are drained, pods and a node die."""

import json
import os
import signal
import threading
import time
import urllib.request

from processes import wait_for
from stage import BARS, CHART, DELAY_MS, NAMESPACE, OUTPUT, SYMBOLS, UP_SECONDS, Load

PAGE, CLUSTER, UPGRADE = "docs/kubernetes/scale.md", "docs/cluster.md", "docs/kubernetes/upgrade.md"
# From the request to the last worker's registration, or to the last pod's end.
SCALE_SECONDS = 120
ROLL_SECONDS = 240
POLL_SECONDS = 0.2
HTTP = 7410
# coordinator.preStopSeconds of the chart, by default.
PRE_STOP_SECONDS = 5


def values(stage, etcd):
    """Two coordinators and small, slowed workers, so that six fit on the nodes and scans last."""
    chosen = {
        "image": {"registry": "localhost"},
        "etcd": {"endpoints": [etcd]},
        "tls": {"mode": "disabled"},
        "data": {"kind": "existingClaim", "existingClaim": "bars"},
        "results": {"kind": "existingClaim", "existingClaim": "results"},
        "priorityClasses": {"create": True},
        "coordinator": {"http": {"enabled": True}, "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}}},
        "worker": {
            "replicas": 2,
            "extraArgs": ["--fault-delay-ms-per-segment", str(DELAY_MS)],
            "config": {"cacheBytes": 268435456},
            "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        },
    }
    path = stage.folder / "values.json"
    path.write_text(json.dumps(chosen))
    return path


def install(stage):
    kubernetes = stage.kubernetes
    bars = stage.volume("bars", "bars")
    stage.volume("results", "results")
    for name in ("bars", "results"):
        claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "100Gi"}}, "volumeName": name, "storageClassName": ""}
        kubernetes.apply(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": claim}
        )
    stage.data = bars
    made = stage.ran("data", "synth", "--symbols", SYMBOLS, "--bars", BARS, "--dataset", "market")
    if made.returncode != 0:
        raise RuntimeError(made.stderr)
    stage.values = values(stage, stage.start_etcd())
    seconds, _ = stage.install("trawl", "--values", stage.values)
    stage.figures["install_seconds"] = round(seconds, 1)
    stage.expected = stage.scan(embedded=True).stdout
    answer = stage.scan()
    stage.claims.add(
        "docs/kubernetes/install.md",
        "a release with an etcd of its own and two shared volumes",
        f"ready after {seconds:.0f} s; a scan of {SYMBOLS} symbols has "
        + ("the bytes of one process" if answer.stdout == stage.expected else "other bytes " + answer.stderr[-300:]),
        answer.stdout == stage.expected and stage.expected and len(stage.registered()) == 2,
    )
    by_http(stage)


def by_http(stage):
    """The scan as an HTTP document, through the Service."""
    expected = stage.ran("scan", "--dataset", "demo", "--where", "close > sma(close, 20)", *OUTPUT).stdout
    asked = json.dumps({"document": {"dataset": "demo", "where": "close > sma(close, 20)"}, "ephemeral": True}).encode()
    headers = {"Content-Type": "application/json", "Accept": "text/csv"}
    request = urllib.request.Request(f"{stage.address.rsplit(':', 1)[0]}:{HTTP}/v1/answers", asked, headers)
    with urllib.request.urlopen(request, timeout=UP_SECONDS) as answer:
        found = answer.read().decode()
    stage.claims.add(
        "docs/http.md",
        "`coordinator.http.enabled`: a scan by HTTP through the Service, port 7410",
        f"status {answer.status}, {len(found)} bytes, {'those of the command' if found == expected else 'others'}",
        found == expected and expected,
    )


def reach(stage, workers, began):
    """Waits until so many workers are registered and no other pod is left; the seconds since `began` until each."""
    wait_for(f"{workers} workers", lambda: len(stage.registered()) == workers, SCALE_SECONDS)
    registered = time.monotonic() - began
    wait_for(f"{workers} pods", lambda: len(stage.pods("worker")) == workers == len(stage.ready("worker")), SCALE_SECONDS)
    return registered, time.monotonic() - began


def scale(stage):
    kubernetes = stage.kubernetes
    ways = {
        "kubectl scale": lambda n: kubernetes.do(
            "kubectl", "--namespace", NAMESPACE, "scale", "deployment/trawl-worker", f"--replicas={n}"
        ),
        "helm upgrade": lambda n: stage.helm("upgrade", "trawl", CHART, "--values", stage.values, "--set", f"worker.replicas={n}"),
    }
    with Load(stage, stage.expected) as load:
        for way, do in ways.items():
            for workers in (6, 2):
                before = len(load.spans)
                began = time.monotonic()
                do(workers)
                registered, gone = reach(stage, workers, began)
                wait_for("two more scans", lambda: len(load.spans) >= before + 2, SCALE_SECONDS)
                stage.figures.setdefault("scaled_seconds", {})[f"{way} {workers}"] = [round(registered, 1), round(gone, 1)]
                stage.claims.add(
                    PAGE,
                    f"`{way}` to {workers} workers while scans run",
                    f"registered after {registered:.1f} s, all pods there or gone after {gone:.1f} s",
                    True,
                )
    lost = sum("lost" in text for text in load.wrong)
    stage.claims.add(PAGE, "workers join and leave without any effect on answers", load.said(), load.right() and not lost)
    ends = [log for log in stage.kubernetes.ended if log["component"] == "worker"]
    codes = sorted({log["exit"] for log in ends})
    stage.claims.add(
        PAGE,
        "a worker that is asked to end exits with 0 within its grace period",
        f"{len(ends)} ended with {codes}, after at most {max((log['seconds'] for log in ends), default=0):.1f} s",
        ends and codes == [0],
    )


def leads_again(stage, led):
    """Another coordinator leads, or the next container of the pod that led: it is ready once the lease of the one before has ended."""
    leader = stage.leader()
    if leader != led:
        return leader is not None
    statuses = stage.pods("coordinator").get(led, {}).get("status", {}).get("containerStatuses", [])
    return any(status["restartCount"] == 1 and status["ready"] for status in statuses)


def leader(stage):
    """The leader is killed as an operator never does, then deleted as an operator does."""
    for how in ("killed", "deleted"):
        led = stage.leader()
        with Load(stage, stage.expected) as load:
            wait_for("scans run", lambda: load.spans, SCALE_SECONDS)
            began = time.monotonic()
            if how == "killed":
                os.kill(stage.process_of(led), signal.SIGKILL)
            else:
                stage.kubernetes.do("kubectl", "--namespace", NAMESPACE, "delete", "pod", led, "--wait=false")
            wait_for("one leads again", lambda: leads_again(stage, led), SCALE_SECONDS)
            seconds = time.monotonic() - began
            who = "another" if stage.leader() != led else "its next container"
            before = len(load.spans)
            wait_for("scans go on", lambda: len(load.spans) >= before + 3, SCALE_SECONDS)
        wait_for("two coordinators are ready", lambda: len(stage.ready("coordinator")) == 2, SCALE_SECONDS)
        restarts = sum(p["status"]["containerStatuses"][0]["restartCount"] for p in stage.pods("coordinator").values())
        again = "; its container was restarted once" if how == "killed" else f", {PRE_STOP_SECONDS} of them before SIGTERM"
        stage.figures[f"leader_{how}_seconds"] = round(seconds, 2)
        stage.claims.add(
            CLUSTER,
            f"the leader's pod is {how} while scans run",
            f"{who} led after {seconds:.1f} s{again}; {load.said()}",
            load.right() and (how == "deleted" or restarts == 1),
        )


def drain(stage):
    kubernetes = stage.kubernetes
    kubernetes.do("kubectl", "--namespace", NAMESPACE, "scale", "deployment/trawl-worker", "--replicas=6")
    reach(stage, 6, time.monotonic())
    fewest, ended = [6], threading.Event()

    def watch():
        while not ended.is_set():
            fewest[0] = min(fewest[0], len(stage.ready("worker")))
            time.sleep(POLL_SECONDS)

    watcher = threading.Thread(target=watch)
    node = next(p["spec"]["nodeName"] for p in stage.pods("worker").values())
    there = sum(p["spec"]["nodeName"] == node for p in stage.pods().values())
    with Load(stage, stage.expected) as load:
        watcher.start()
        began = time.monotonic()
        kubernetes.do("kubectl", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s")
        seconds = time.monotonic() - began
        wait_for("six workers elsewhere", lambda: len(stage.ready("worker")) == 6, SCALE_SECONDS)
        ended.set()
        watcher.join()
    left = [name for name, pod in stage.pods().items() if pod["spec"].get("nodeName") == node]
    kubernetes.do("kubectl", "uncordon", node)
    stage.figures["drain_seconds"] = round(seconds, 1)
    stage.claims.add(
        PAGE,
        "`kubectl drain` while scans run; the budget lets no more than a quarter of the workers go at once",
        f"{there} pods left {node} in {seconds:.0f} s, {fewest[0]} of 6 workers at least ready; {load.said()}",
        load.right() and not left and fewest[0] >= 4,
    )


def node_dies(stage):
    """A node with workers ends without a word: the lease in etcd tells Trawl, long before Kubernetes gives the node up."""
    kubernetes = stage.kubernetes
    coordinators = {pod["spec"]["nodeName"] for pod in stage.pods("coordinator").values()}
    pods = stage.pods("worker")
    node = next(n for n in kubernetes.nodes if n.name not in coordinators and any(p["spec"]["nodeName"] == n.name for p in pods.values()))
    on_it = [name for name, pod in pods.items() if pod["spec"]["nodeName"] == node.name]
    with Load(stage, stage.expected) as load:
        wait_for("scans run", lambda: load.spans, SCALE_SECONDS)
        began = time.monotonic()
        node.fail()
        wait_for("its workers are not listed", lambda: not set(on_it) & set(stage.registered()), SCALE_SECONDS)
        gone = time.monotonic() - began
        before = len(load.spans)
        wait_for("the node is not ready", lambda: node.name not in kubernetes.ready_nodes(), SCALE_SECONDS)
        late = time.monotonic() - began
        wait_for("scans go on", lambda: len(load.spans) >= before + 2, SCALE_SECONDS)
        node.start_again()
        wait_for("the node is back", lambda: node.name in kubernetes.ready_nodes(), SCALE_SECONDS)
        wait_for("six workers", lambda: len(stage.registered()) == 6, SCALE_SECONDS)
    stage.figures["node_lost_seconds"] = {"worker": round(gone, 1), "node": round(late, 1)}
    stage.claims.add(
        PAGE,
        "a node fails: other workers do its work again",
        f"its {len(on_it)} workers were gone from Trawl after {gone:.1f} s, the node was not ready after {late:.0f} s; {load.said()}",
        load.right(),
    )


def upgrade(stage):
    """Every pod is replaced: images of another tag, then those of before."""
    kubernetes = stage.kubernetes
    before = set(stage.pods("coordinator")) | set(stage.pods("worker"))
    with Load(stage, stage.expected) as load:
        wait_for("scans run", lambda: load.spans, SCALE_SECONDS)
        began = time.monotonic()
        stage.helm(
            "upgrade", "trawl", CHART, "--values", stage.values, "--set", "image.tag=next,worker.replicas=4", "--wait", "--timeout", f"{ROLL_SECONDS}s"
        )
        seconds = time.monotonic() - began
        wait_for("old pods are gone", lambda: not before & set(stage.pods()), ROLL_SECONDS)
        after = len(load.spans)
        began = time.monotonic()
        stage.helm("rollback", "trawl", "--wait", "--timeout", f"{ROLL_SECONDS}s")
        back = time.monotonic() - began
        wait_for("scans go on", lambda: len(load.spans) >= after + 2, SCALE_SECONDS)
    images = {pod["spec"]["containers"][0]["image"].rsplit(":", 1)[1] for pod in stage.pods("worker").values() if "deletionTimestamp" not in pod["metadata"]}
    stage.figures["upgrade_seconds"] = {"upgrade": round(seconds, 1), "rollback": round(back, 1)}
    stage.claims.add(
        UPGRADE,
        "`helm upgrade` to another tag and `helm rollback` while scans run: running scans continue",
        f"{seconds:.0f} s and {back:.0f} s for {len(before)} pods; {load.said()}; now {sorted(images)}",
        load.right() and images == {"0.1.0"},
    )
