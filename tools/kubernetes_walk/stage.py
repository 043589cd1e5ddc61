"""What the checks do as an operator and as a user: releases of the chart, scans through the Service, and what the pods were seen to do."""

import json
import os
import pathlib
import re
import subprocess
import threading
import time

from network import GATEWAY
from processes import Process, wait_for

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CHART = ROOT / "helm/trawl"
NAMESPACE = "trawl"
CONDITION = "close > sma(close, 20) and xs_rank(volume) > 0.2"
# A segment of a slowed worker; a scan of the market lasts some seconds, of which the CPU is busy for a few.
DELAY_MS = 150
SYMBOLS, BARS = 2000, 120
OUTPUT = ("--quiet", "--format", "csv", "--output", "-")
UP_SECONDS = 180
CLIENTS = 2
USER = 65532


def images(trawl, etcd):
    """The images of the chart, as deploy/images/Dockerfile makes them, and etcd's."""
    program = {
        "files": {"/usr/bin/trawl": str(trawl)},
        "entrypoint": ["/usr/bin/trawl"],
        "environment": ["TRAWL_DATA_ROOT=/var/lib/trawl/data", "XDG_CACHE_HOME=/var/cache/trawl"],
        "directories": ["/var/lib/trawl", "/var/cache/trawl"],
        "user": USER,
    }
    tags = {f"localhost/trawl/{name}:0.1.0": program for name in ("coordinator", "worker", "worker-cuda", "cli")}
    values = (CHART / "values.yaml").read_text()
    return tags | {re.search(r"image: (quay\S+)", values)[1]: {"files": {"/usr/local/bin/etcd": str(etcd)}, "user": 0}}


class Stage:
    def __init__(self, kubernetes, claims, folder):
        self.kubernetes, self.claims, self.folder = kubernetes, claims, folder
        self.trawl = kubernetes.programs["trawl"]
        self.figures = {}
        self.data = folder / "data"
        self.release, self.address = None, None
        # Programs whose custom resources were created.
        self.brought = set()

    # Objects of the cluster

    def pods(self, component=None):
        """Pods of Trawl by name."""
        items = self.kubernetes.get(f"/api/v1/namespaces/{NAMESPACE}/pods").get("items", [])
        of = lambda pod, name: pod["metadata"].get("labels", {}).get(f"app.kubernetes.io/{name}")
        return {pod["metadata"]["name"]: pod for pod in items if of(pod, "part-of") == "trawl" and component in (None, of(pod, "component"))}

    def ready(self, component):
        """Pods that are ready and do not end."""
        return [
            name
            for name, pod in self.pods(component).items()
            if "deletionTimestamp" not in pod["metadata"]
            and any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
        ]

    def volume(self, name, claim, mode="ReadWriteMany", size="100Gi"):
        """A directory of this machine as a volume that is bound to one claim."""
        path = self.folder / "volumes" / name
        path.mkdir(parents=True, exist_ok=True)
        os.chown(path, USER, USER)
        self.kubernetes.apply(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": name},
                "spec": {
                    "capacity": {"storage": size},
                    "accessModes": [mode],
                    "hostPath": {"path": str(path)},
                    "claimRef": {"namespace": NAMESPACE, "name": claim},
                },
            }
        )
        return path

    def namespace(self):
        """The namespace admits only pods of the standard `restricted`."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest"}
        self.kubernetes.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})

    def custom(self, program):
        """Creates the custom resources that come with a program, if it is there, once."""
        if not self.kubernetes.programs[program] or program in self.brought:
            return
        self.brought.add(program)
        for path in sorted(pathlib.Path(self.kubernetes.programs[program], "resources").glob("*.yaml")):
            self.kubernetes.do("kubectl", "create", "-f", path)
            asked = ("get", "-f", path, '--output=jsonpath={.status.conditions[?(@.type=="Established")].status}')
            wait_for(f"{path.stem} is served", lambda: self.kubernetes.ran("kubectl", *asked).stdout == "True", UP_SECONDS)

    def beside(self, name, namespace, port):
        """A service for a program that runs beside the nodes, at this machine's address; it is reached at port 443."""
        meta = {"name": name, "namespace": namespace}
        self.kubernetes.apply(
            {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"port": 443, "targetPort": port}]}},
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": meta | {"labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": [GATEWAY]}],
                "ports": [{"name": "", "port": port, "protocol": "TCP"}],
            },
        )

    def runs(self, name):
        """Whether a program was started beside the nodes."""
        return any(process.name == name for process in self.kubernetes.processes)

    # Releases

    def helm(self, *arguments):
        return self.kubernetes.do("helm", "--namespace", NAMESPACE, *arguments)

    def install(self, release, *options, verb="install", chart=CHART):
        """A release, and the seconds until everything in it is ready."""
        began = time.monotonic()
        said = self.helm(verb, release, chart, *options, "--wait", "--timeout", f"{UP_SECONDS}s")
        self.release = release
        service = self.kubernetes.get(f"/api/v1/namespaces/{NAMESPACE}/services/{release}-coordinator")
        self.address = f"http://{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"
        return time.monotonic() - began, said

    def uninstall(self):
        began = time.monotonic()
        self.helm("uninstall", self.release)
        wait_for("all pods are gone", lambda: not self.pods(), UP_SECONDS)
        return time.monotonic() - began

    # Scans

    def environment(self):
        keep = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        return keep | {"TRAWL_DATA_ROOT": str(self.data)}

    def ran(self, *arguments, variables=None):
        command = [self.trawl, *arguments]
        return subprocess.run(list(map(str, command)), env=self.environment() | (variables or {}), capture_output=True, text=True)

    def command(self, *arguments):
        return self.ran(*arguments, "--coordinator", self.address, "--insecure")

    def scan(self, dataset="market", where=CONDITION, embedded=False, more=(), variables=None):
        arguments = ["scan", "--dataset", dataset, "--where", where, *OUTPUT, *more]
        return self.ran(*arguments, variables=variables) if embedded else self.command(*arguments, "--fresh", "--shards", "per-group")

    def registered(self):
        """Names of workers that are in etcd and do not drain."""
        lines = [json.loads(line) for line in self.command("workers", "--json").stdout.splitlines() if line.startswith("{")]
        return [line["worker"] for line in lines if line["state"] != "draining"]

    def leader(self):
        lines = [json.loads(line) for line in self.command("coordinators", "--json").stdout.splitlines() if line.startswith("{")]
        return next((line["coordinator"] for line in lines if line["leads"]), None)

    def process_of(self, pod):
        """The process of a pod, as this machine numbers it."""
        for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
            try:
                if f"TRAWL_ID={pod}".encode() in path.read_bytes().split(b"\0"):
                    return int(path.parent.name)
            except OSError:
                continue
        raise RuntimeError(f"no process of {pod}")

    def look(self):
        """What an operator looks at first, where something went wrong."""
        for command in ("get pods,events --all-namespaces --output wide", f"--namespace {NAMESPACE} describe pods"):
            said = self.kubernetes.ran("kubectl", *command.split())
            (self.folder / f"{command.split()[-1]}.txt").write_text(said.stdout + said.stderr)
        print(self.kubernetes.ran("kubectl", "get", "pods", "--all-namespaces").stdout)

    def start_etcd(self):
        """An etcd beside the cluster, as production brings its own."""
        url, peer = f"http://{GATEWAY}:2479", "http://127.0.0.1:2480"
        command = [self.kubernetes.programs["etcd"], "--name", "own", "--data-dir", self.folder / "own-etcd", "--listen-client-urls", url]
        command += ["--advertise-client-urls", url, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        process = Process("own-etcd", self.folder / "own-etcd.log", [*command, "--initial-cluster", f"own={peer}"], dict(os.environ))
        process.start()
        self.kubernetes.processes.append(process)
        return url


class Load:
    """Scans without a pause, each compared with the answer of one process; `with Load(stage) as load`."""

    def __init__(self, stage, expected, clients=CLIENTS, more=(), scan=None, read=lambda ended: ended.stdout):
        self.expected, self.ended, self.read = expected, threading.Event(), read
        self.scan = scan or (lambda: stage.scan(more=more))
        # When each scan began and ended.
        self.spans, self.wrong = [], []
        self.threads = [threading.Thread(target=self.run) for _ in range(clients)]

    def run(self):
        while not self.ended.is_set():
            began = time.monotonic()
            ended = self.scan()
            self.spans.append((began, time.monotonic()))
            if ended.returncode != 0 or self.read(ended) != self.expected:
                self.wrong.append(ended.stderr.strip()[-400:] or "other bytes")

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def said(self):
        wrong = f", wrong: {self.wrong[0]}" if self.wrong else ""
        return f"{len(self.spans)} scans, {len(self.spans) - len(self.wrong)} with equal bytes{wrong}"

    def right(self):
        return self.spans and not self.wrong
