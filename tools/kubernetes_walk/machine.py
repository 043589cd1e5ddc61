"""A cluster of Kubernetes on this machine: etcd, the control plane and kubelets as they are released, with the runtime of tools/kubernetes
below them. Everything is in network, mount and PID namespaces of its own, so that nothing is left behind."""

import contextlib
import datetime
import json
import os
import pathlib
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import network
from network import API_PORT, BRIDGE, DNS, GATEWAY, SERVICES
from processes import Process, wait_for

API = f"https://127.0.0.1:{API_PORT}"
INSIDE = "TRAWL_KUBERNETES_WALK_INSIDE"
START_SECONDS = 300
# Seconds without a node's lease after which its pods count as not ready; Kubernetes' own default is 50.
NODE_GRACE_SECONDS = 20
USERS = {
    "admin": ("admin", "system:masters"),
    "controllers": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "services": ("system:kube-proxy", ""),
}
SIGN = "openssl req -newkey rsa:2048 -nodes -keyout {name}.key -subj {subject} -out {name}.csr"


def enter():
    """Runs this program again in namespaces of its own; its processes end with it."""
    if os.environ.get(INSIDE):
        return
    if os.geteuid() != 0:
        print("SKIPPED: namespaces and mounts of pods need root: nothing ran on Kubernetes", file=sys.stderr)
        sys.exit(77)
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, *sys.argv]
    os.execvpe("unshare", command, os.environ | {INSIDE: "1"})


def run(*command, **more):
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, **more)
    if ended.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {ended.stdout}{ended.stderr}")
    return ended.stdout


class Node:
    def __init__(self, cluster, number):
        self.cluster, self.number, self.name = cluster, number, f"node-{number}"
        self.folder = cluster.folder / self.name
        self.folder.mkdir()
        self.address = f"10.244.0.{10 + number}"
        socket = self.folder / "cri.sock"
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "healthzPort": 0,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{socket}",
            "clusterDNS": [DNS],
            "clusterDomain": "cluster.local",
            "podLogsDir": str(self.folder / "pods-logs"),
            # Pods have cgroups of the runtime: the kubelet's own hierarchy exists once per machine.
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": ["none"],
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "localStorageCapacityIsolation": False,
            "nodeStatusUpdateFrequency": "5s",
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
        }
        (self.folder / "kubelet.json").write_text(json.dumps(config))
        user = cluster.user(self.name, f"system:node:{self.name}", "system:nodes")
        env = dict(os.environ)
        runtime = [cluster.programs["runtime"], "node", "-socket", socket, "-root", self.folder / "containers", "-number", number]
        runtime += ["-images", cluster.images_file, "-bridge", BRIDGE, "-gateway", GATEWAY]
        self.runtime = Process(f"{self.name}-runtime", self.folder / "runtime.log", runtime, env)
        kubelet = [cluster.programs["kubernetes"], "kubelet", "--config", self.folder / "kubelet.json", "--kubeconfig", user]
        kubelet += ["--hostname-override", self.name, "--node-ip", self.address, "--root-dir", self.folder / "kubelet"]
        kubelet += ["--cert-dir", self.folder / "pki", "--node-labels", f"topology.kubernetes.io/zone=zone-{number % 2 + 1}"]
        self.kubelet = Process(f"{self.name}-kubelet", self.folder / "kubelet.log", kubelet, env)

    def start(self):
        run("ip", "address", "add", f"{self.address}/16", "dev", BRIDGE)
        self.runtime.start()
        wait_for("the runtime's socket", (self.folder / "cri.sock").exists, 30)
        self.kubelet.start()

    def fail(self):
        """What a power cut is to the cluster: the kubelet and all containers end at once, and say nothing."""
        self.kubelet.signal(signal.SIGKILL)
        self.runtime.signal(signal.SIGKILL)
        self.kubelet.gone()
        self.runtime.gone()
        for pod in pathlib.Path("/run/netns").glob(f"n{self.number}p*"):
            run("ip", "netns", "delete", pod.name)

    def start_again(self):
        (self.folder / "cri.sock").unlink()
        run("ip", "address", "delete", f"{self.address}/16", "dev", BRIDGE)
        self.start()


class Kubernetes:
    def __init__(self, programs, folder, nodes):
        self.programs, self.folder, self.processes = programs, folder, []
        self.images_file = folder / "images.json"
        self.images_file.write_text("{}")
        self.tokens = []
        self.pki = folder / "pki"
        self.pki.mkdir()
        self.certificates()
        self.configs = {name: self.user(name, *who) for name, who in USERS.items()}
        self.nodes = [Node(self, number) for number in range(1, nodes + 1)]
        # How containers ended: name, component, exit code, seconds since their pod was asked to end.
        self.ended = []
        self.context = ssl.create_default_context(cafile=self.pki / "ca.crt")

    def certificates(self):
        """A CA, the API server's certificate and that with which it reaches other API servers; the key of service accounts' tokens."""
        openssl = lambda text: run(*text.split(), cwd=self.pki)
        openssl("openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -subj /CN=test -days 30")
        names = "DNS:kubernetes.default.svc,IP:127.0.0.1,IP:10.96.0.1,IP:" + GATEWAY
        (self.pki / "names").write_text(f"subjectAltName={names}\n")
        for name in ("server", "front"):
            openssl(SIGN.format(name=name, subject=f"/CN={name}"))
            more = " -extfile names" if name == "server" else ""
            openssl(f"openssl x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out {name}.crt{more}")
        openssl("openssl genrsa -out accounts.key 2048")

    def user(self, name, user, groups):
        """A user of the API server and the file with which a program is that user."""
        token = os.urandom(16).hex()
        self.tokens.append((token, user, name, groups))
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": API, "certificate-authority": str(self.pki / "ca.crt")}}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
            "current-context": "test",
        }
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(json.dumps(config))
        path.chmod(0o600)
        return path

    def start_process(self, name, command, **environment):
        process = Process(name, self.folder / f"{name}.log", command, dict(os.environ) | environment)
        process.start()
        self.processes.append(process)
        return process

    def start(self):
        network.make(run, self.folder)
        # Kubelets write links to logs there.
        pathlib.Path("/var/log/containers").mkdir(exist_ok=True)
        run("mount", "-t", "tmpfs", "tmpfs", "/var/log/containers")
        etcd = self.programs["etcd"]
        self.start_process("etcd", [etcd, "--data-dir", self.folder / "etcd", "--unsafe-no-fsync"])
        tokens = self.folder / "tokens.csv"
        tokens.write_text("".join(f'{t},{user},{name},"{groups}"\n' for t, user, name, groups in self.tokens))
        tokens.chmod(0o600)
        pki, program = self.pki, self.programs["kubernetes"]
        issuer = "https://kubernetes.default.svc.cluster.local"
        server = ["--etcd-servers=http://127.0.0.1:2379", "--advertise-address", GATEWAY, f"--secure-port={API_PORT}"]
        server += ["--service-cluster-ip-range", SERVICES, "--authorization-mode=Node,RBAC", "--token-auth-file", tokens]
        server += ["--tls-cert-file", pki / "server.crt", "--tls-private-key-file", pki / "server.key", "--client-ca-file", pki / "ca.crt"]
        server += ["--service-account-issuer", issuer, "--service-account-key-file", pki / "accounts.key"]
        server += ["--service-account-signing-key-file", pki / "accounts.key", "--enable-admission-plugins=NodeRestriction"]
        server += ["--requestheader-client-ca-file", pki / "ca.crt", "--requestheader-allowed-names=front"]
        server += ["--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group"]
        server += ["--requestheader-username-headers=X-Remote-User", "--kubelet-preferred-address-types=InternalIP"]
        server += ["--proxy-client-cert-file", pki / "front.crt", "--proxy-client-key-file", pki / "front.key"]
        self.start_process("kube-apiserver", [program, "kube-apiserver", *server])
        self.began = time.monotonic()
        wait_for("the API server is ready", lambda: self.answers("/readyz") == b"ok", START_SECONDS)
        config = self.configs["controllers"]
        controllers = ["--kubeconfig", config, "--authentication-kubeconfig", config, "--authorization-kubeconfig", config]
        controllers += ["--service-account-private-key-file", pki / "accounts.key", "--root-ca-file", pki / "ca.crt"]
        controllers += ["--use-service-account-credentials", "--leader-elect=false", f"--node-monitor-grace-period={NODE_GRACE_SECONDS}s"]
        self.start_process("kube-controller-manager", [program, "kube-controller-manager", *controllers])
        config = self.configs["scheduler"]
        scheduler = ["--kubeconfig", config, "--authentication-kubeconfig", config, "--authorization-kubeconfig", config]
        self.start_process("kube-scheduler", [program, "kube-scheduler", *scheduler, "--leader-elect=false"])
        network.start_proxy(self)
        network.start_policies(self, run)
        for node in self.nodes:
            node.start()
        wait_for("all nodes are ready", lambda: len(self.ready_nodes()) == len(self.nodes), START_SECONDS)
        network.start_names(self)

    def stop(self):
        """Containers end with their runtimes. Whatever is left ends with the PID namespace."""
        for node in self.nodes:
            node.fail()
        for process in reversed(self.processes):
            process.kill()
        for folder in pathlib.Path("/sys/fs/cgroup").glob("*/trawl-kubernetes"):
            for pod in (*folder.glob("*/"), folder):
                with contextlib.suppress(OSError):
                    pod.rmdir()

    def watch_ends(self, namespace):
        """Keeps the last state of every container of the namespace: a pod's object is gone soon after its containers."""

        def follow():
            known = set()
            while True:
                try:
                    path = f"/api/v1/namespaces/{namespace}/pods?watch=1&timeoutSeconds=3600"
                    with urllib.request.urlopen(self.request(path), context=self.context) as events:
                        for line in events:
                            self.note_end(json.loads(line)["object"], known)
                except (OSError, ValueError, KeyError):
                    time.sleep(1)

        threading.Thread(target=follow, daemon=True).start()

    def note_end(self, pod, known):
        asked = pod["metadata"].get("deletionTimestamp")
        for container in pod.get("status", {}).get("containerStatuses", []):
            ended = container.get("state", {}).get("terminated")
            if not asked or not ended or (key := (pod["metadata"]["name"], container["name"])) in known:
                continue
            known.add(key)
            # The time by which the pod must have ended; it was asked its grace period before.
            grace = pod["metadata"].get("deletionGracePeriodSeconds", 0)
            seconds = grace - (when(asked) - when(ended["finishedAt"]))
            row = {"pod": key[0], "exit": ended["exitCode"], "seconds": seconds, "grace": grace}
            self.ended.append(row | {"component": pod["metadata"].get("labels", {}).get("app.kubernetes.io/component")})

    def request(self, path):
        return urllib.request.Request(API + path, headers={"Authorization": f"Bearer {self.tokens[0][0]}"})

    def answers(self, path):
        request = self.request(path)
        try:
            with urllib.request.urlopen(request, timeout=10, context=self.context) as answer:
                return answer.read()
        except (urllib.error.URLError, OSError):
            return None

    def get(self, path):
        """An object or a list of the API, an empty one where there is none."""
        answer = self.answers(path)
        return json.loads(answer) if answer else {}

    def ready_nodes(self):
        nodes = self.get("/api/v1/nodes").get("items", [])
        ready = lambda node: any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
        return [node["metadata"]["name"] for node in nodes if ready(node)]

    def environment(self):
        keep = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        own = {"HELM_CACHE_HOME": str(self.folder / "helm"), "HELM_CONFIG_HOME": str(self.folder / "helm"), "HELM_DATA_HOME": str(self.folder / "helm")}
        return keep | own | {"KUBECONFIG": str(self.configs["admin"])}

    def ran(self, program, *arguments, text=None):
        """A command of an operator: kubectl or helm."""
        command = [self.programs[program], *arguments]
        return subprocess.run(list(map(str, command)), env=self.environment(), capture_output=True, text=True, input=text)

    def do(self, program, *arguments, text=None):
        ended = self.ran(program, *arguments, text=text)
        if ended.returncode != 0:
            raise RuntimeError(f"{program} {' '.join(map(str, arguments))}: {ended.stdout}{ended.stderr}")
        return ended.stdout

    def apply(self, *objects):
        self.do("kubectl", "apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def images(self, **rows):
        """Adds rows to the table of images, `name=row`."""
        table = json.loads(self.images_file.read_text()) | rows
        new = self.images_file.with_suffix(".new")
        new.write_text(json.dumps(table, indent=1))
        new.rename(self.images_file)


def when(text):
    return datetime.datetime.fromisoformat(text).timestamp()
