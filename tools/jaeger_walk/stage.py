"""What every check runs on: etcd, a cluster whose processes send spans, the collector and Jaeger."""

import json
import pathlib
import statistics
import subprocess
import time

import traces
from parts import Collector, Jaeger, total
from processes import Cluster, Etcd, wait_for

# A process of the cluster sends an incomplete batch after this long; the standard's default is five seconds.
SCHEDULE_DELAY_MS = 1000
# From a scan's end until all of its spans are in Jaeger: the processes' delay, the collector's wait after the root, its batches.
SEEN_SECONDS = 75
UP_SECONDS = 60
CONDITION = "close > sma(close, 20)"
# Of the slowed worker, before each segment; far above the limit at which a shard counts as slow.
SLOW_MS = 1500
ETCD_QUOTA_BYTES = 2 * 1024**3


class Stage:
    def __init__(self, programs, folder, claims):
        self.programs, self.folder, self.claims = programs, folder, claims
        self.data = folder / "data"
        self.figures = {}
        self.jaeger = Jaeger(programs["jaeger"], folder)
        self.collector = Collector(programs["otelcol"], folder, self.jaeger)
        self.running = []

    def synth(self, name, symbols, bars):
        if not (self.data / name).exists():
            make = [self.programs["trawl"], "data", "synth", "--symbols", symbols, "--bars", bars, "--dataset", name]
            subprocess.run(list(map(str, [*make, "--data-root", self.data])), check=True, capture_output=True)

    def start(self, process, ready=None):
        process.start()
        if process not in self.running:
            self.running.append(process)
        if ready or hasattr(process, "ready"):
            wait_for(
                f"{process.name} answers; see {getattr(process, 'log', self.folder)}",
                ready or process.ready,
                UP_SECONDS,
            )
        return process

    def stop(self):
        for process in reversed(self.running):
            process.stop()
        self.running.clear()

    def cluster(self, name, otlp, workers=3, data=None, own_data=None, **variables):
        """A cluster that sends spans to `otlp`, registered and ready."""
        folder = self.folder / name
        folder.mkdir()
        etcd = self.start(Etcd(self.programs["etcd"], folder, ETCD_QUOTA_BYTES))
        cluster = Cluster(name, folder, self.programs["trawl"], etcd, data or self.data, 1, workers, own_data=own_data)
        # The user's own commands get the same environment.
        shared = {"OTEL_EXPORTER_OTLP_ENDPOINT": otlp, "OTEL_METRICS_EXPORTER": "none", "TRAWL_LOG_FORMAT": "json"}
        shared |= {"OTEL_BSP_SCHEDULE_DELAY": str(SCHEDULE_DELAY_MS)} | variables
        for environment in [cluster.environment, *(p.environment for p in cluster.processes())]:
            environment.update(shared)
        self.start(cluster, lambda: self.registered(cluster) == workers)
        return cluster

    def end(self, *processes):
        for process in processes:
            process.stop()
            self.running.remove(process)

    def end_cluster(self, cluster):
        self.end(cluster, cluster.etcd)

    @staticmethod
    def registered(cluster):
        listed = cluster.command("workers")
        return sum(f"w{n}" in listed for n in range(1, len(cluster.workers) + 1))

    def restart(self, cluster, worker, *options):
        """A worker ends and starts again with other options."""
        log = pathlib.Path(worker.log)
        worker.stop()
        before = log.read_text().count("ready worker ")
        worker.start(*options)
        wait_for(f"{worker.name} is ready", lambda: log.read_text().count("ready worker ") > before, UP_SECONDS)
        wait_for("the coordinator knows it", lambda: self.registered(cluster) == len(cluster.workers), UP_SECONDS)

    def slow_down(self, cluster, worker, ms=SLOW_MS):
        self.restart(cluster, worker, "--fault-delay-ms-per-segment", ms)

    def scan(self, cluster, *more, dataset="market", where=CONDITION, shards="per-group"):
        """Runs a scan to its end: its trace's id (empty where none was recorded), the coordinator's seconds, the command's."""
        seen = len(ended(cluster))
        began = time.monotonic()
        said = cluster.command("scan", "--dataset", dataset, "--where", where, "--shards", shards, "--quiet", *more)
        took = time.monotonic() - began
        rows = wait_for(
            f"the scan's end in the coordinator's log; the command said {said!r}", lambda: ended(cluster)[seen:], 20
        )
        return {
            "trace": rows[-1].get("trace_id", ""),
            "span": rows[-1].get("span_id", ""),
            "seconds": rows[-1]["fields"]["seconds"],
            "command": took,
            "said": said,
        }

    def trace(self, found, complete=lambda trace: True, seconds=SEEN_SECONDS):
        """The trace of a scan in Jaeger, once it is a whole tree and `complete`."""

        def look():
            trace = traces.get(self.jaeger, found["trace"])
            if trace is None:
                return None
            roots, orphans = traces.tree(trace)
            return trace if len(roots) == 1 and not orphans and complete(trace) else None

        return wait_for(f"the whole trace {found['trace']} in Jaeger", look, seconds)


def ended(cluster):
    """The coordinator's lines about scans that have ended."""
    lines = pathlib.Path(cluster.coordinators[0].log).read_text().splitlines()
    rows = [json.loads(line) for line in lines if '"scan ended"' in line]
    return [row for row in rows if row.get("message") == "scan ended"]


def dropped(cluster):
    """Spans that the servers of a cluster count as dropped."""
    return sum(total(f"http://{p.metrics}/metrics", "trawl_spans_dropped_total") for p in cluster.processes())


def median(scans, what="seconds"):
    return statistics.median(scan[what] for scan in scans)
