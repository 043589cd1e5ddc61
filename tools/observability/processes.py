"""Processes of real clusters on loopback: etcd, coordinators and workers, which can be killed, frozen and started again."""

import base64
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request


# Below the ports that Linux gives to outgoing connections: one of those may be taken by a connection before it is listened at.
PORTS = range(20_000, 32_000)
given_ports = set()


def free_port():
    while True:
        port = random.choice(PORTS)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in given_ports:
            given_ports.add(port)
            return port


class Process:
    """A child with its log. Every port is fixed, so that a later start is found at the same address."""

    def __init__(self, name, log, command, environment):
        self.name, self.log, self.command, self.environment = name, log, list(map(str, command)), environment
        # Where in the log its last start begins.
        self.child, self.began = None, 0

    def start(self, *more, environment=None):
        self.gone()
        with open(self.log, "ab") as log:
            self.began = log.tell()
            self.child = subprocess.Popen(
                self.command + list(map(str, more)),
                env=self.environment | (environment or {}),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def printed(self, text):
        """Whether its log has this text since its last start."""
        with open(self.log, "rb") as log:
            log.seek(self.began)
            return text.encode() in log.read()

    def signal(self, number):
        if self.child and self.child.poll() is None:
            self.child.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.gone()

    def stop(self):
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        self.gone()

    def gone(self):
        """Waits for the end of the child, which was asked to end."""
        if self.child:
            try:
                self.child.wait(40)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
            self.child = None


class Etcd(Process):
    def __init__(self, program, folder, quota_bytes):
        self.url, peer = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
        command = [program, "--data-dir", folder / "etcd", "--listen-client-urls", self.url]
        command += ["--advertise-client-urls", self.url, "--listen-peer-urls", peer]
        command += ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
        command += ["--quota-backend-bytes", quota_bytes]
        super().__init__("etcd", folder / "etcd.log", command, dict(os.environ))

    def call(self, path, **body):
        """etcd's own gateway from JSON to gRPC; what etcdctl does, without etcdctl."""
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def fill(self):
        """Puts keys of another program until the quota is used up."""
        value = base64.b64encode(os.urandom(512 * 1024)).decode()
        try:
            for number in range(1000):
                self.call("/v3/kv/put", key=base64.b64encode(f"filler/{number}".encode()).decode(), value=value)
        except urllib.error.HTTPError as full:
            return full.read().decode()
        raise RuntimeError("etcd took 500 MB: its quota does not work")

    def free(self):
        """What docs/runbook.md says under TrawlEtcdNoSpace: delete, compact, defragment, disarm."""
        end = base64.b64encode(b"filler0").decode()
        deleted = self.call("/v3/kv/deleterange", key=base64.b64encode(b"filler/").decode(), range_end=end)
        self.call("/v3/kv/compaction", revision=deleted["header"]["revision"], physical=True)
        self.call("/v3/maintenance/defragment")
        for alarm in self.call("/v3/maintenance/alarm", action="GET").get("alarms", []):
            self.call("/v3/maintenance/alarm", action="DEACTIVATE", memberID=alarm["memberID"], alarm=alarm["alarm"])


DEPLOYED = {"MIMALLOC_ALLOW_THP": "0"}  # of coordinators, in the chart and in the unit of systemd


class Cluster:
    """Coordinators that share a result store, and workers; the last worker has a copy of the bars of its own."""

    def __init__(self, name, folder, trawl, etcd, data, coordinators, workers, own_data=None, options=(), results=None):
        self.name, self.trawl, self.folder, self.etcd, self.data = name, trawl, folder, etcd, data
        self.results = results or folder / "results"
        # A directory that all coordinators see; a bucket is shared anyway.
        shared = [] if "://" in str(self.results) else ["--results-shared"]
        folder.mkdir(parents=True, exist_ok=True)
        keep = ("PATH", "HOME", "LANG", "TMPDIR")
        self.environment = {k: v for k, v in os.environ.items() if k in keep}
        self.environment |= {"TRAWL_ETCD_ENDPOINTS": etcd.url, "TRAWL_CLUSTER_NAME": name, "TRAWL_ETCD_TIMEOUT_S": "60"}
        self.environment |= {"TRAWL_DATA_ROOT": str(data), "TRAWL_DRAIN_TIMEOUT_S": "1", "TRAWL_LOG": "info"}
        self.environment |= {"TRAWL_FRESH": "1"}
        self.coordinators, self.workers, self.ports = [], [], {"coordinator": [], "worker": []}
        for number in range(1, coordinators + 1):
            command = [trawl, "coordinator", "--results", self.results, *shared, *options]
            process = self.process("coordinator", f"c{number}", command)
            process.environment = process.environment | DEPLOYED
            self.coordinators.append(process)
        for number in range(1, workers + 1):
            process = self.process("worker", f"w{number}", [trawl, "worker", "--threads", 1])
            if own_data and number == workers:
                process.environment = process.environment | {"TRAWL_DATA_ROOT": str(own_data)}
            self.workers.append(process)
        self.addresses = ",".join(f"{self.scheme}://{c.address}" for c in self.coordinators)

    scheme = "http"

    def process(self, role, name, command):
        listen, metrics = f"127.0.0.1:{free_port()}", free_port()
        self.ports[role].append(metrics)
        command = [*command, "--listen", listen, "--id", name, "--metrics", metrics]
        process = Process(name, self.folder / f"{name}.log", command, self.environment)
        process.address, process.metrics = listen, f"127.0.0.1:{metrics}"
        return process

    def processes(self):
        return [*self.coordinators, *self.workers]

    def start(self):
        for process in self.processes():
            process.start()

    def stop(self):
        for process in self.processes():
            process.signal(signal.SIGCONT)
            process.signal(signal.SIGTERM)
        for process in self.processes():
            process.gone()

    def command(self, *arguments, wait=True):
        """A command of the program, as a user runs it. Its output, or the running child."""
        command = [str(self.trawl), *map(str, arguments), "--coordinator", self.addresses]
        child = subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
        )
        return child.communicate()[0] if wait else child

    def scan(self, *more, dataset="bars", wait=True):
        arguments = ["scan", "--dataset", dataset, "--where", "close > sma(close, 20)", "--shards", "per-group", "--quiet"]
        return self.command(*arguments, "--output", self.folder / "answer.csv", *more, wait=wait)

    def detach(self, count, dataset="bars", deadline=None):
        """Submits recorded scans, with a deadline in seconds or without, and does not wait for their answers."""
        arguments = ["scan", "--dataset", dataset, "--where", "close > sma(close, 20)", "--shards", "per-group", "--detach"]
        arguments += ["--deadline", deadline] if deadline else []
        children = [self.command(*arguments, wait=False) for _ in range(count)]
        return [child.communicate()[0] for child in children]

    def cancel_all(self):
        for line in self.command("scans", "list", "--active", "--json").splitlines():
            if line.startswith("{"):
                self.command("scans", "cancel", json.loads(line)["scan"])

    def restart_workers(self, *more, environment=None):
        for worker in self.workers:
            worker.kill()
            worker.start(*more, environment=environment)


def wait_for(what, holds, seconds):
    """Polls until `holds` returns something true, which is returned; an error with `what` after so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := holds():
            return found
        time.sleep(0.25)
    raise TimeoutError(f"{what}: not within {seconds} s")


def damage(folder: pathlib.Path, dataset):
    """Overwrites bytes in every file of bars of a dataset; what they were is returned."""
    kept = {}
    for path in sorted((folder / dataset / "files").glob("*.arrow")):
        kept[path] = path.read_bytes()
        broken = bytearray(kept[path])
        for at in range(len(broken) // 4, len(broken) - 64, 4096):
            broken[at : at + 32] = b"\xff" * 32
        path.chmod(0o644)
        path.write_bytes(broken)
    return kept


def repair(kept):
    for path, content in kept.items():
        path.write_bytes(content)
