"""Faults of the machines that processes run on: devices that fail, are hot or compute wrongly, a limit of memory, a file system that is
read-only. Devices are the test driver's (testing/cuda)."""

import itertools
import json
import os
import pathlib
import shutil
import subprocess
import time

from datasets import APPENDED_FILES, LONG, make_appended
from fault import Fault
from processes import wait_for

# A limit below what a worker uses, and a command that runs another one in which a file says it: where control groups of version 2 are mounted
# another file system is, for this process alone.
LIMIT_BYTES = 32 << 20
LIMITED = 'mount -t tmpfs tmpfs /sys/fs/cgroup; mkdir -p "/sys/fs/cgroup$1"; echo $2 > "/sys/fs/cgroup$1/memory.max"; shift 2; exec "$@"'
# A command that runs another one for which a folder is read-only.
READ_ONLY = 'mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"; shift; exec "$@"'
# A device of the test driver, and one whose fourth kernel accesses an illegal address.
DEVICE, BROKEN_DEVICE = "kernel_us=2000", "kernel_us=2000 fault=kernel:4:700"
# One that is too hot, and has rows of memory to replace.
ILL_DEVICE = "kernel_us=2000 throttle=hot pending=1"
# Two with memory for one segment at a time; of the second all that is copied to the host differs in one bit of each number.
SMALL_DEVICE, WRONG_DEVICE = "kernel_us=2000 memory=1000000", "kernel_us=2000 memory=1000000 damage=1"
# Milliseconds before each segment. Of a shard of ten segments the wrong worker has three left when it is late (three times what the
# others take), and then answers one that its hedge has answered before, while it still has others to do. Of a shard of one it is not late.
SOUND_MS, WRONG_MS = 300, 1200
# Into how many shards scans are cut in turn: who gets which is not known before.
SHARDS = (3, 4, 5, 6)
# As NVIDIA's container toolkit names it to a process; all workers share it.
UUID = "GPU-00000000-0000-4000-8000-000000000001"
GET_DRIVER = pathlib.Path(__file__).parent.parent / "get-test-driver"


def control_group():
    """This process' control group of version 2; None where there is none."""
    groups = pathlib.Path("/proc/self/cgroup").read_text().splitlines()
    group = next((line.removeprefix("0::") for line in groups if line.startswith("0::")), None)
    return group if pathlib.Path("/sys/fs/cgroup").is_dir() else None


def may_mount():
    """Whether a process may be given mounts of its own."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return False
    tried = ["unshare", "--mount", "sh", "-ec", "mount -t tmpfs tmpfs /tmp"]
    return subprocess.run(tried, capture_output=True).returncode == 0


MOUNTS, GROUP = may_mount(), control_group()
NOT_TRIED = {}
if not MOUNTS or GROUP is None:
    NOT_TRIED["TrawlMemoryNearLimit"] = "needs root and control groups of version 2, to put a file in place of a limit"
if not MOUNTS:
    NOT_TRIED["TrawlCompactionsFailing"] = "needs root, to mount a data root read-only"


def with_device(settings):
    """Variables of a process that has a device with these settings."""
    # What it says while it waits or builds goes to the terminal.
    folder = subprocess.run([GET_DRIVER], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    return {"TRAWL_CUDA_LIBRARIES": folder, "TRAWL_TEST_DRIVER": settings, "NVIDIA_VISIBLE_DEVICES": UUID}


class Machines:
    def __init__(self, cluster, prometheus, load, data):
        self.cluster, self.prometheus, self.load, self.data = cluster, prometheus, load, data
        self.first, self.commands, self.shards = cluster.workers[0], {}, itertools.cycle(SHARDS)

    def within(self, process, script, *arguments):
        """Starts a process within a script of the shell that has mounts of its own."""
        process.stop()
        self.commands[process.name] = process.command
        process.command = ["unshare", "--mount", "sh", "-ec", script, "sh", *map(str, arguments), *process.command]

    def without(self, process):
        process.stop()
        process.command = self.commands.pop(process.name)

    def limit_memory(self):
        self.within(self.first, LIMITED, GROUP, LIMIT_BYTES)
        self.first.start()

    def lift_limit(self):
        self.without(self.first)
        self.first.start()

    def make_read_only(self):
        make_appended(self.cluster.trawl, self.data)
        for process in self.cluster.coordinators:
            self.within(process, READ_ONLY, self.data)
        for process in self.cluster.coordinators:
            process.start("--compact-appended", APPENDED_FILES)

    def make_writable(self):
        for process in self.cluster.coordinators:
            self.without(process)
        for process in self.cluster.coordinators:
            process.start()

    def lose_device(self):
        self.cluster.restart_workers(environment=with_device(DEVICE))
        query = f'trawl_device_info{{cluster="{self.cluster.name}"}}'
        devices = lambda: self.prometheus.ask("query", query=query)["result"]
        known = lambda: {device["metric"]["gpu_uuid"] for device in devices() if "gpu_uuid" in device["metric"]}
        self.prometheus.exporter.devices = wait_for("the devices are known", known, 30)
        # Long enough for the rules that join them with the exporter's figures.
        utilised = lambda: self.prometheus.value("trawl:device_utilisation:ratio") > 0
        wait_for("and what the exporter says of them", utilised, 30)
        self.first.kill()
        self.first.start(environment=with_device(BROKEN_DEVICE))

    def device_again(self):
        """A worker that ended is started again, as systemd does."""
        if self.first.child.poll() is not None:
            self.first.start(environment=with_device(DEVICE))

    def values(self, dataset, shards):
        """A scan that returns values, computed by devices; who answered shards."""
        report = self.cluster.folder / "report.json"
        report.unlink(missing_ok=True)
        words = ["scan", "--dataset", dataset, "--where", "close > sma(close, 20)", "--select", "sma(close, 20)", "--shards", shards]
        words += ["--backend", "cuda", "--quiet", "--output", self.cluster.folder / "answer.csv", "--report", report]
        said = self.cluster.command(*words)
        if not report.exists():
            raise OSError(f"a scan on devices has no report: {said}")
        return [run["worker"] for run in json.loads(report.read_text())["shard_runs"] if run["ending"] == "done"]

    def compute_wrongly(self):
        self.load.pause()
        for worker in self.cluster.workers:
            worker.kill()
        for worker in self.cluster.workers:
            wrong = worker is self.first
            delay = ["--fault-delay-ms-per-segment", WRONG_MS if wrong else SOUND_MS]
            worker.start(*delay, environment=with_device(WRONG_DEVICE if wrong else SMALL_DEVICE))
        wait_for("the workers are ready", lambda: all(w.printed("ready ") for w in self.cluster.workers), 60)
        # An answer that is delivered before anything is noticed.
        wait_for("the wrong worker has its part in an answer", lambda: self.first.name in self.values("bars", "per-group"), 60)

    def compute_rightly(self):
        """A worker is quarantined for as long as its coordinator leads."""
        for process in self.cluster.coordinators:
            process.stop()
        for process in self.cluster.coordinators:
            process.start()
        self.cluster.restart_workers()
        self.load.go_on()

    def devices(self):
        return [
            Fault(
                "the device of one worker fails; the worker is started again when it has ended",
                ["TrawlDeviceQuarantined"],
                self.lose_device,
                self.cluster.restart_workers,
                again=self.device_again,
            ),
            Fault(
                "the devices of all workers are hot and have rows of memory to replace",
                ["TrawlDeviceThrottled", "TrawlDeviceNeedsReset"],
                lambda: self.cluster.restart_workers(environment=with_device(ILL_DEVICE)),
                self.cluster.restart_workers,
            ),
            Fault(
                "the device of one worker of three computes wrongly; the worker is slow, so that its shards are hedged",
                ["TrawlResultsDisputed", "TrawlScanDoubted", "TrawlWorkerQuarantined"],
                self.compute_wrongly,
                self.compute_rightly,
                again=lambda: (self.values(LONG, next(self.shards)), time.sleep(1)),
            ),
        ]

    def limits(self):
        what = f"a file in place of the control group's limit says {LIMIT_BYTES >> 20} MiB, less than a worker uses"
        limit = Fault(what, ["TrawlMemoryNearLimit"], self.limit_memory, self.lift_limit)
        return [] if "TrawlMemoryNearLimit" in NOT_TRIED else [limit]

    def rights(self):
        what = "the data root is read-only for coordinators, which are to compact a dataset"
        fault = Fault(what, ["TrawlCompactionsFailing"], self.make_read_only, self.make_writable)
        return [] if "TrawlCompactionsFailing" in NOT_TRIED else [fault]
