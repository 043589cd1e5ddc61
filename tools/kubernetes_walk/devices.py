"""Workers with a GPU: nodes whose capacity says `nvidia.com/gpu`, and the test driver in place of NVIDIA's, in a volume of its own."""

import json
import os
import pathlib
import shutil
import time

import autoscale
from processes import wait_for
from stage import CHART, NAMESPACE, UP_SECONDS, USER, Load, images

PAGE = "docs/kubernetes/gpu-nodes.md"
RESOURCE, RELEASE, DRIVER = "nvidia.com/gpu", "trawl-gpu", "/opt/test-driver"
GPU_NODES = 2
SCALE_SECONDS = 180
# Several times KEDA's interval of asking.
QUIET_SECONDS = 20
# The driver's compiler is this machine's, which its image has besides Trawl.
COMPILER = {f"/usr/bin/{name}": f"/usr/bin/{name}" for name in ("g++", "as", "ld")} | {"/usr/include": "/usr/include"}


def driver(stage):
    """The test driver as a volume: it keeps compiled kernels beside itself."""
    path = stage.volume("driver", "driver")
    for file in pathlib.Path(stage.kubernetes.programs["driver"]).iterdir():
        if file.is_file():
            shutil.copy(file, path / file.name)
            os.chown(path / file.name, USER, USER)
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "100Gi"}}, "volumeName": "driver", "storageClassName": ""}
    stage.kubernetes.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "driver", "namespace": NAMESPACE}, "spec": claim})


def capacity(stage, nodes):
    """What NVIDIA's device plugin and operator do to a node: a resource, and a taint."""
    kubernetes = stage.kubernetes
    patch = json.dumps({"status": {"capacity": {RESOURCE: "1"}}})
    for node in nodes:
        kubernetes.do("kubectl", "patch", "node", node, "--subresource=status", "--type=merge", "--patch", patch)
        kubernetes.do("kubectl", "taint", "node", node, f"{RESOURCE}=present:NoSchedule")
    allocatable = lambda node: kubernetes.get(f"/api/v1/nodes/{node}")["status"]["allocatable"].get(RESOURCE)
    wait_for("the nodes have a device", lambda: all(allocatable(node) == "1" for node in nodes), SCALE_SECONDS)


def values(stage):
    """Workers for the cluster of the other release."""
    base = json.loads(stage.values.read_text())
    volume, mount = {"name": "driver", "persistentVolumeClaim": {"claimName": "driver"}}, {"name": "driver", "mountPath": DRIVER}
    environment = {"TRAWL_CUDA_LIBRARIES": DRIVER, "CXX": "/usr/bin/g++"}
    worker = {
        "replicas": GPU_NODES,
        "gpu": {"enabled": True},
        "extraEnv": [{"name": name, "value": value} for name, value in environment.items()],
        "extraVolumes": [volume],
        "extraVolumeMounts": [mount],
        "config": {"cacheBytes": 268435456, "threads": 1},
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
    }
    same = {key: base[key] for key in ("image", "etcd", "tls", "data")}
    path = stage.folder / "gpu.json"
    path.write_text(json.dumps(same | {"clusterName": "trawl", "coordinator": {"enabled": False}, "worker": worker}))
    return path


def of_release(stage, release):
    return {name: pod for name, pod in stage.pods("worker").items() if pod["metadata"]["labels"]["app.kubernetes.io/instance"] == release}


def waiting(stage):
    """Why a pod of the release is not scheduled; nothing where all are."""
    conditions = [c for pod in of_release(stage, RELEASE).values() for c in pod["status"].get("conditions", [])]
    return next((c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), None)


def devices(stage):
    """CPU and GPU workers of one cluster are two releases."""
    kubernetes, claim = stage.kubernetes, stage.claims.add
    stage.install("trawl", "--values", stage.values, verb="upgrade")
    cuda = images(stage.trawl, kubernetes.programs["etcd"])["localhost/trawl/worker-cuda:0.1.0"]
    kubernetes.images(**{"localhost/trawl/worker-cuda:0.1.0": cuda | {"files": cuda["files"] | COMPILER}})
    driver(stage)
    nodes = [node.name for node in kubernetes.nodes[:GPU_NODES]]
    capacity(stage, nodes)
    stage.helm("install", RELEASE, CHART, "--values", values(stage), "--wait", "--timeout", f"{UP_SECONDS}s")
    pods = of_release(stage, RELEASE)
    places = sorted(pod["spec"]["nodeName"] for pod in pods.values())
    limits = {pod["spec"]["containers"][0]["resources"]["limits"].get(RESOURCE) for pod in pods.values()}
    claim(
        PAGE,
        "`worker.gpu.enabled`: a worker requests one `nvidia.com/gpu` and tolerates the taint of that name",
        f"{len(pods)} pods with {sorted(map(str, limits))} on {', '.join(places)}, which alone have a device and the taint",
        places == nodes and limits == {"1"},
    )
    scale = lambda n: kubernetes.do("kubectl", "--namespace", NAMESPACE, "scale", f"deployment/{RELEASE}-worker", f"--replicas={n}")
    scale(GPU_NODES + 1)
    why = wait_for("one pod waits", lambda: waiting(stage), SCALE_SECONDS)
    claim(PAGE, "a worker for which there is no device waits", why.split(". ")[0][:160], "Insufficient nvidia.com/gpu" in why)
    scale(GPU_NODES)
    listed = lambda: [line for line in stage.command("workers").stdout.splitlines() if "serving" in line]
    of_class = lambda name: sum(f" {name} " in line for line in listed())
    wait_for("CPU and GPU workers serve", lambda: (of_class("cpu"), of_class("cuda")) == (2, GPU_NODES), SCALE_SECONDS)
    claim(PAGE, "CPU and GPU workers together are two releases of one cluster", f"{of_class('cpu')} workers of class cpu, {of_class('cuda')} of class cuda serve", True)
    local = {"TRAWL_CUDA_LIBRARIES": str(kubernetes.programs["driver"])}
    expected = stage.scan("market", embedded=True, more=("--backend", "cuda"), variables=local).stdout
    there = stage.scan("market", more=("--backend", "cuda"))
    claim(
        PAGE,
        "a scan with `--backend cuda` runs on them, and has the bytes of one process on such a device (the test driver's)",
        f"{len(there.stdout)} bytes, {'equal' if there.stdout == expected else there.stderr[-200:] or 'different'}",
        there.stdout == expected and expected,
    )
    with Load(stage, stage.expected, more=("--backend", "cpu")) as load:
        steps = []
        for wanted in (0, GPU_NODES):
            scale(wanted)
            wait_for(f"{wanted} GPU workers", lambda: of_class("cuda") == wanted, SCALE_SECONDS)
            steps.append(f"{of_class('cuda')} cuda and {of_class('cpu')} cpu")
            if wanted == 0:
                anywhere = stage.scan("market")
    claim(
        PAGE,
        f"the pool of GPU workers is scaled {GPU_NODES} -> 0 -> {GPU_NODES} by itself, while scans of class cpu run",
        f"{'; '.join(steps)}; {load.said()}",
        load.right(),
    )
    claim(
        PAGE,
        "a scan that starts while no GPU worker serves runs on the CPU",
        "equal bytes" if anywhere.stdout == stage.expected else anywhere.stderr[-200:] or "other bytes",
        anywhere.stdout == stage.expected,
    )
    again = stage.scan("market", more=("--backend", "cuda"))
    claim(PAGE, "and after it scans with `--backend cuda` have the same bytes", f"{len(again.stdout)} bytes", again.stdout == expected)
    if kubernetes.programs["keda"]:
        keda(stage, expected, of_class)
    else:
        stage.claims.skip(PAGE, "`worker.autoscaling.keda.backend: cuda`: a pool of GPU workers from zero and to zero", "no keda: tools/get-keda builds it")
    stage.helm("uninstall", RELEASE)
    wait_for("its pods are gone", lambda: not of_release(stage, RELEASE), SCALE_SECONDS)
    for node in nodes:
        kubernetes.do("kubectl", "taint", "node", node, f"{RESOURCE}-")


def keda(stage, expected, of_class):
    """GPU workers from none and to none, by the work of their class alone."""
    claim = stage.claims.add
    autoscale.keda_processes(stage)
    stage.install("trawl", "--values", stage.values, "--set", "coordinator.kedaOfOtherReleases=true", verb="upgrade")
    at = f"trawl-coordinator.{NAMESPACE}.svc:7400"
    auto = autoscale.KEDA | {"maxReplicas": GPU_NODES, "keda": autoscale.KEDA["keda"] | {"backend": "cuda", "scalerAddress": at}}
    path = stage.folder / "gpu-keda.json"
    path.write_text(json.dumps({"worker": {"autoscaling": auto}}))
    stage.helm("upgrade", RELEASE, CHART, "--values", stage.folder / "gpu.json", "--values", path, "--wait", "--timeout", f"{UP_SECONDS}s")
    wait_for("no GPU worker without work", lambda: not of_release(stage, RELEASE), SCALE_SECONDS)
    with Load(stage, stage.expected, more=("--backend", "cpu")) as load:
        woken, end = 0, time.monotonic() + QUIET_SECONDS
        while time.monotonic() < end:
            woken = max(woken, len(of_release(stage, RELEASE)))
            time.sleep(1)
    claim(
        PAGE,
        "`worker.autoscaling.keda.backend: cuda`: work of class cpu starts no GPU worker",
        f"{woken} in {QUIET_SECONDS} s; {load.said()}",
        woken == 0 and load.right(),
    )
    began = time.monotonic()
    answer = stage.scan("market", more=("--backend", "cuda"))
    took = time.monotonic() - began
    began = time.monotonic()
    wait_for("no GPU worker again", lambda: not of_release(stage, RELEASE), SCALE_SECONDS)
    claim(
        PAGE,
        "a scan with `--backend cuda` wakes the pool, waits for it, and is answered; then the pool is empty again, and CPU workers stay",
        f"answered after {took:.0f} s, {'equal bytes' if answer.stdout == expected else answer.stderr[-200:] or 'other bytes'}; "
        f"none {time.monotonic() - began:.0f} s later; {of_class('cpu')} workers of class cpu",
        answer.stdout == expected and of_class("cpu") == 2,
    )
    stage.figures["keda_gpu_seconds"] = round(took, 1)
