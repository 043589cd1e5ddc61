"""The faults: what is done to a real cluster, which alerts must fire because of it, and how it is undone.

Not here, and why, is in NOT_TRIED; promtool alone makes those alerts fire (deploy/prometheus/tests).
"""

import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

import machines
from datasets import WATCHED, WIDE, WIDE_SYMBOLS, import_daily
from fault import Fault
from processes import damage, repair, wait_for

NEVER = {"TrawlSegmentsPanicked": "needs a bug of the engine"}
NOT_TRIED = NEVER | machines.NOT_TRIED
# An answer of 12 MB: of what a sweep selects this many combinations. Coordinators keep the least of it in memory that they may, and the rest
# fits into their spools.
SWEEP, MEMORY_BYTES, SPOOL_BYTES = 39, 1 << 20, 12_500_000


def leader(cluster, prometheus):
    """The coordinator that leads."""

    def found():
        samples = prometheus.ask("query", query=f'trawl_leader{{cluster="{cluster.name}"}} == 1')["result"]
        addresses = {sample["metric"]["instance"] for sample in samples}
        return next((c for c in cluster.coordinators if c.metrics in addresses), None)

    return wait_for("a leader", found, 60)


def set_files_max(process, more):
    """Allows so many files more than are open; the old limit is returned."""
    pid = process.child.pid
    limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
    before = re.search(r"Max open files\s+(\d+)", limits)[1]
    now = len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir())) + more
    subprocess.run(["prlimit", "--pid", str(pid), f"--nofile={now}:"], check=True)
    return before


def all_faults(cluster, guarded, prometheus, load, data, own_data):
    """In an order in which the traces that one leaves do not hide the next one's."""
    etcd, workers, coordinators = cluster.etcd, cluster.workers, cluster.coordinators
    kept = {}
    at_machines = machines.Machines(cluster, prometheus, load, data)

    def scale_to_zero():
        load.pause()
        cluster.cancel_all()
        for worker in workers:
            worker.stop()

    def submit():
        if not kept.pop("submitted", False):
            cluster.detach(2)
        kept["submitted"] = True

    def workers_back():
        kept.pop("submitted", None)
        cluster.restart_workers()
        load.go_on()

    def freeze_work():
        load.pause()
        cluster.restart_workers("--fault-delay-ms-per-segment", 3_600_000)
        time.sleep(3)
        cluster.detach(30)

    def thaw_work():
        cluster.cancel_all()
        cluster.restart_workers()
        load.go_on()

    def forgetful(*slow):
        """Workers that keep no bars, so that none is preferred for holding them; the first one with further options."""
        for number, worker in enumerate(workers):
            worker.stop()
            worker.start("--cache-bytes", 0, *(slow if number == 0 else ()))

    def remembering():
        for worker in workers:
            worker.stop()
            worker.start()

    def slow_work():
        load.pause()
        cluster.restart_workers("--fault-delay-ms-per-segment", 3000)

    def lethal_symbol():
        load.pause()
        cluster.restart_workers("--fault-delay-ms-per-segment", 3_600_000)
        wait_for("the workers are ready", lambda: all(worker.printed("ready ") for worker in workers), 30)
        cluster.detach(1, dataset=WATCHED)

    def kill_all():
        """Whoever computes it dies."""
        time.sleep(2)
        cluster.restart_workers("--fault-delay-ms-per-segment", 3_600_000)

    def stop_reading():
        """A client that stops while the answer is on its way."""
        cluster.restart_workers("--fault-delay-ms-per-segment", 20)
        wait_for("the workers are ready", lambda: all(worker.printed("ready ") for worker in workers), 30)
        select = [word for more in range(4) for word in ("--select", f"sma(close, n + {more}) as c{more}")]
        words = ["scan", "--dataset", WIDE, "--where", "close > 0", "--sweep", f"n=2:{SWEEP + 1}:1", *select]
        words += ["--ephemeral", "--quiet", "--shards", "per-group", "--output", cluster.folder / "wide.csv"]
        kept["reader"] = cluster.command(*words, wait=False)
        spooled = f'trawl_results_spooled_bytes{{cluster="{cluster.name}"}}'
        wait_for("results are in the spool", lambda: prometheus.value(spooled) > 0, 30)
        kept["reader"].send_signal(signal.SIGSTOP)
        if kept["reader"].poll() is not None:
            raise OSError("the client has read all before it was stopped")

    def leave():
        kept["reader"].kill()
        kept["reader"].communicate()
        cluster.restart_workers()

    def another_worker():
        forgetful()
        kept["stranger"] = cluster.process("worker", "w-unreachable", [cluster.trawl, "worker", "--threads", 1])
        kept["stranger"].start("--advertise", "127.0.0.1:1")

    def block_results():
        cluster.results.rename(cluster.folder / "results.away")
        cluster.results.write_text("in the way")
        # Without a deadline the last results of a scan are tried for ten minutes.
        cluster.detach(8, deadline=3)

    def unblock_results():
        cluster.results.unlink()
        (cluster.folder / "results.away").rename(cluster.results)

    def damage_one():
        kept["own"] = damage(own_data, "bars")
        workers[-1].kill()
        workers[-1].start()

    def repair_one():
        repair(kept.pop("own"))
        workers[-1].stop()
        workers[-1].start()

    def damage_all():
        """The bars of another dataset, in every copy, so that no host has a sound one."""
        kept["all"] = [damage(folder, "other") for folder in (data, own_data)]

    def repair_all():
        for files in kept.pop("all"):
            repair(files)
        cluster.restart_workers()

    def old_bars():
        shutil.rmtree(data / WATCHED)
        import_daily(cluster.trawl, data, 10)

    def hand_over():
        now = leader(cluster, prometheus)
        now.stop()
        now.start()
        time.sleep(2)

    def slow_etcd():
        etcd.signal(signal.SIGSTOP)
        time.sleep(0.9)
        etcd.signal(signal.SIGCONT)
        time.sleep(0.3)

    def strange_calls():
        for _ in range(70):
            host, port = guarded.coordinators[0].address.split(":")
            with socket.create_connection((host, int(port)), timeout=5) as s:
                s.sendall(b"GET / HTTP/1.1\r\n\r\n")

    def etcd_again():
        etcd.signal(signal.SIGCONT)
        etcd.start() if etcd.child is None else None

    return [
        Fault("SIGKILL to one worker", ["TrawlWorkersLost"], workers[0].kill, workers[0].start),
        Fault(
            "a worker that registers an address where nobody listens",
            ["TrawlWorkerUnreachable"],
            another_worker,
            lambda: (kept["stranger"].stop(), remembering()),
        ),
        Fault(
            "SIGSTOP to a worker for longer than its lease",
            ["TrawlLeasesLost"],
            lambda: (workers[1].signal(signal.SIGSTOP), time.sleep(9), workers[1].signal(signal.SIGCONT)),
            lambda: None,
        ),
        Fault(
            "all workers leave, as when scaled to zero (12 s in which nothing may fire), then scans are submitted",
            ["TrawlNoWorkers"],
            scale_to_zero,
            workers_back,
            again=submit,
            silent=(12, ["TrawlNoWorkers", "TrawlScansStuck"]),
        ),
        Fault(
            "workers that wait an hour before each segment, 30 scans at a coordinator for 4 + 8",
            ["TrawlScansStuck", "TrawlQueueFull"],
            freeze_work,
            thaw_work,
        ),
        Fault(
            f"workers that wait 3 s before each segment, scans of {WIDE_SYMBOLS // 64 + 1} segments are submitted one after the other",
            ["TrawlQueueGrowing"],
            slow_work,
            thaw_work,
            again=lambda: (cluster.detach(1, dataset=WIDE), time.sleep(2)),
        ),
        Fault(
            "workers are killed whenever they have a certain symbol",
            ["TrawlSegmentsPoisoned"],
            lethal_symbol,
            thaw_work,
            again=kill_all,
        ),
        *at_machines.devices(),
        Fault(
            f"a client stops that has asked for 12 MB, at coordinators with {MEMORY_BYTES >> 20} MiB in memory and {SPOOL_BYTES / 1e6} MB on disk; it is killed",
            ["TrawlResultsPileUp"],
            stop_reading,
            leave,
        ),
        Fault(
            "workers that wait 1.5 s before each segment (objective here: 1 s)",
            ["TrawlScanLatencyBurnsFast", "TrawlScanLatencyBurnsSlowly"],
            lambda: (load.pause(), cluster.restart_workers("--fault-delay-ms-per-segment", 1500)),
            lambda: (cluster.cancel_all(), cluster.restart_workers(), load.go_on()),
            again=lambda: (cluster.detach(2), time.sleep(4)),
        ),
        Fault(
            "one worker of three waits 2.5 s before each segment",
            ["TrawlManyHedges"],
            lambda: forgetful("--fault-delay-ms-per-segment", 2500),
            remembering,
        ),
        Fault(
            "one worker of three has no bars",
            ["TrawlManyRetries"],
            lambda: (workers[0].kill(), workers[0].start("--data-root", cluster.folder)),
            lambda: (workers[0].kill(), workers[0].start()),
        ),
        Fault(
            "a file is in the way of the result store's directory, for scans with a deadline of 3 s",
            ["TrawlResultStoreFailing", "TrawlScansFailed", "TrawlScanSuccessBurnsFast", "TrawlScanSuccessBurnsSlowly"],
            block_results,
            unblock_results,
            again=lambda: (cluster.detach(2, deadline=3), time.sleep(1)),
        ),
        Fault(
            "the own copy of one worker is damaged",
            ["TrawlDamagedCopy", "TrawlWorkerQuarantined"],
            damage_one,
            repair_one,
        ),
        Fault(
            "every copy of a dataset is damaged",
            ["TrawlSegmentsFailed", "TrawlDataDamaged"],
            damage_all,
            repair_all,
            again=lambda: (cluster.scan(dataset="other"), time.sleep(1)),
        ),
        Fault(
            "bars that end ten days ago take the place of those of yesterday; then those of yesterday are imported",
            ["TrawlDataLate"],
            old_bars,
            lambda: import_daily(cluster.trawl, data, 1),
        ),
        Fault(
            "spans are sent to a port where nobody listens",
            ["TrawlSpansDropped"],
            lambda: (
                workers[0].stop(),
                workers[0].start(
                    environment={
                        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
                        "OTEL_METRICS_EXPORTER": "none",
                        "OTEL_BSP_SCHEDULE_DELAY": "200",
                    }
                ),
            ),
            lambda: (workers[0].stop(), workers[0].start()),
        ),
        Fault(
            "a process may open two files more",
            ["TrawlFilesNearLimit"],
            lambda: kept.update(files=set_files_max(workers[1], 2)),
            lambda: subprocess.run(["prlimit", "--pid", str(workers[1].child.pid), f"--nofile={kept['files']}:"], check=True),
        ),
        *at_machines.limits(),
        *at_machines.rights(),
        Fault(
            "70 connections that speak no TLS",
            ["TrawlStrangers"],
            strange_calls,
            lambda: None,
            cluster="guarded",
        ),
        Fault(
            "a certificate that is valid for a day; then one for 30 days",
            ["TrawlCertificateEnds"],
            lambda: guarded.make_certificates(1),
            lambda: guarded.make_certificates(30),
            cluster="guarded",
        ),
        Fault(
            "SIGTERM to the leader, whoever it is, again and again",
            ["TrawlLeaderFlapping"],
            lambda: None,
            lambda: None,
            again=hand_over,
        ),
        Fault(
            "SIGSTOP to etcd for 0.9 s of every 1.2 s",
            ["TrawlEtcdSlow"],
            lambda: None,
            lambda: None,
            again=slow_etcd,
        ),
        Fault(
            "etcd's quota is used up; then delete, compact, defragment, disarm",
            ["TrawlEtcdNoSpace"],
            lambda: (etcd.fill(), None),
            etcd.free,
            again=lambda: cluster.detach(1),
        ),
        Fault("SIGKILL to etcd", ["TrawlEtcdFailing"], etcd.kill, etcd_again),
        Fault(
            "SIGKILL to both coordinators",
            ["TrawlNoLeader", "TrawlProcessDown"],
            lambda: [c.kill() for c in coordinators],
            lambda: [c.start() for c in coordinators],
        ),
    ]
