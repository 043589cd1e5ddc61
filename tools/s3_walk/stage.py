"""What the checks run on: a server of buckets, etcd, and clusters whose bars and results are in a bucket; nothing else is shared."""

import os
import pathlib
import subprocess

from processes import Cluster, Etcd, wait_for
from server import ROOT_SECRET

UP_SECONDS = 60
ETCD_QUOTA_BYTES = 2 * 1024**3
CONDITION = "close > sma(close, 20) and xs_rank(volume) > 0.2"
OUTPUT = ("--quiet", "--format", "csv", "--output", "-")


class Stage:
    def __init__(self, programs, folder, claims, store, issuer=None):
        self.programs, self.folder, self.claims = programs, folder, claims
        self.store, self.issuer = store, issuer
        self.data = f"{store.bucket_url}/data"
        self.running = []

    def start(self, process, ready):
        process.start()
        self.running.append(process)
        wait_for(f"{process.name} answers; see {getattr(process, 'log', self.folder)}", ready, UP_SECONDS)

    def end(self, *processes):
        for process in processes:
            process.stop()
            self.running.remove(process)

    def stop(self):
        for process in reversed(self.running):
            process.stop()
        self.running.clear()

    def trawl(self, *arguments, root=None, cache="cache", variables=None, check=True):
        """A command of the program over the bucket, or over another data root. What it printed."""
        ended = self.ran(*arguments, root=root, cache=cache, variables=variables)
        if check and ended.returncode != 0:
            raise RuntimeError(f"trawl {' '.join(map(str, arguments))}: {ended.stdout}{ended.stderr}")
        return ended.stdout

    def ran(self, *arguments, root=None, cache="cache", variables=None):
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environment |= self.store.variables() if variables is None else variables
        environment |= {"TRAWL_DATA_ROOT": str(root or self.data), "TRAWL_DATA_CACHE": str(self.folder / cache)}
        command = [self.programs["trawl"], *arguments]
        return subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True)

    def synth(self, name, symbols, bars):
        """The same bars in the bucket, and in a directory to compare with."""
        make = ["data", "synth", "--symbols", symbols, "--bars", bars, "--dataset", name]
        self.trawl(*make, root=self.folder / "directory")
        self.trawl(*make)

    def expected(self, name, where=CONDITION):
        """The answer of one process on the directory."""
        return self.trawl("scan", "--dataset", name, "--where", where, *OUTPUT, root=self.folder / "directory")

    def cluster(self, name, variables, workers=3):
        """A coordinator and workers, each with a cache of its own, registered and ready."""
        folder = self.folder / name
        folder.mkdir()
        etcd = Etcd(self.programs["etcd"], folder, ETCD_QUOTA_BYTES)
        self.start(etcd, lambda: True)
        results = f"{self.store.bucket_url}/results/{name}"
        cluster = Cluster(name, folder, self.programs["trawl"], etcd, self.data, 1, workers, results=results)
        for process in cluster.processes():
            cache = folder / f"cache-{process.name}"
            process.environment = process.environment | variables | {"TRAWL_DATA_CACHE": str(cache)}
        self.start(cluster, lambda: self.registered(cluster) == workers)
        return cluster

    def end_cluster(self, cluster):
        self.end(cluster, cluster.etcd)

    @staticmethod
    def registered(cluster):
        listed = cluster.command("workers")
        return sum(f"w{n}" in listed for n in range(1, len(cluster.workers) + 1))

    def restart(self, process, **variables):
        """A process ends and starts again, with other variables."""
        log = pathlib.Path(process.log)
        process.stop()
        before = log.read_text().count("ready ")
        process.environment = process.environment | variables
        process.start()
        wait_for(f"{process.name} is ready", lambda: log.read_text().count("ready ") > before, UP_SECONDS)

    def scan(self, cluster, dataset, wait=True):
        """A scan of a cluster by a client that knows no bucket: its answer and exit code, or the running child."""
        command = ["scan", "--dataset", dataset, "--where", CONDITION, "--shards", "per-group", "--fresh", *OUTPUT]
        return self.without_bucket(cluster, *command, wait=wait)

    @staticmethod
    def without_bucket(cluster, *command, wait=True):
        child = cluster.command(*command, wait=False)
        return (child.communicate()[0], child.returncode) if wait else child

    def scan_alone(self, dataset, cache, variables=None):
        """The answer of one process over the bucket."""
        ended = self.ran("scan", "--dataset", dataset, "--where", CONDITION, *OUTPUT, cache=cache, variables=variables)
        return ended.stdout + ended.stderr

    def same(self, where, claim, said, expected):
        """A claim that an answer has the bytes of one process on a directory."""
        self.claims.add(where, claim, "equal bytes" if said == expected else said[-300:].replace("\n", " "), said == expected)

    def no_secret(self, where, text):
        found = [word for word in (ROOT_SECRET, "-secret-of-this-test", *self.store.secrets) if word in text]
        self.claims.add(where, "no secret is in a log", f"{len(found)} found", not found)


def logs(cluster):
    return "".join(pathlib.Path(process.log).read_text() for process in cluster.processes())
