#!/usr/bin/env python3
"""A rolling upgrade with two real executables: an earlier one, and this one. No scan may be lost, no row may differ.

    tools/upgrade.py --earlier target/tools/trawl-c7b7003 --executable target/release/trawl [--rounds 3]

Each round starts an etcd, two coordinators and two workers of the earlier executable, submits recorded scans, and while they
run replaces the coordinators one after the other, then the workers, by this executable; then it submits scans by clients of
both. Every accepted scan has to end, and its rows have to be those that the earlier executable computes in one process.
Exit code 1 otherwise.
"""

import argparse
import csv
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WAIT_S = 120.0
# Expressions whose bits the two executables agree on: selections and quotients of bars. Their means differ by design.
CONDITIONS = [
    "close >= highest(high, 20) or close <= lowest(low, 20)",
    "roc(close, 21) > 5",
    "close > open and volume > lowest(volume, 50) * 2",
]
SELECT = ["--select", "close", "--select", "highest(high, 20) as top", "--rank", "roc(close, 21) desc"]


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Round:
    def __init__(self, earlier, present, folder):
        self.executables = {"earlier": earlier, "present": present}
        self.folder = folder
        self.environment = {**os.environ, "TRAWL_DATA_ROOT": str(folder / "data"), "TRAWL_LOG": "info", "TRAWL_FRESH": "1"}
        self.processes, self.problems, self.scans = {}, [], 0

    def start(self, name, which, *arguments):
        log = open(self.folder / f"{name}.log", "wb")
        process = subprocess.Popen([self.executables[which], *arguments], env=self.environment,
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        self.processes[name] = process

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def ready(self, name):
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            found = re.search(r"^ready .*", self.log(name), re.M)
            if found:
                return found.group()
            if self.processes[name].poll() is not None:
                sys.exit(f"{name} ended:\n{self.log(name)}")
            time.sleep(0.05)
        sys.exit(f"{name} is not ready:\n{self.log(name)}")

    def run(self, which, *arguments, check=True):
        ended = subprocess.run([self.executables[which], *arguments], env=self.environment, stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, timeout=WAIT_S)
        if check and ended.returncode != 0:
            self.problems.append(f"{which} {' '.join(arguments)}: exit code {ended.returncode}: {ended.stderr.strip()}")
        return ended

    def start_etcd(self, executable):
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        log = open(self.folder / "etcd.log", "wb")
        self.processes["etcd"] = subprocess.Popen(
            [executable, "--name=own", f"--data-dir={self.folder / 'etcd'}", f"--listen-client-urls={client}",
             f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
             f"--initial-cluster=own={peer}"], stdout=log, stderr=log)
        self.etcd = client
        time.sleep(1.0)

    def server(self, role, name, which, *further):
        self.start(name, which, role, "--etcd", self.etcd, "--listen", "127.0.0.1:0", "--id", name,
                   "--cluster-name", "upgrade", *further)
        return re.search(r"url=(\S+)", self.ready(name) + " url=none").group(1)

    def coordinator(self, name, which):
        return self.server("coordinator", name, which, "--results-shared")

    def worker(self, name, which, delay_ms=150):
        self.server("worker", name, which, "--threads", "1", "--fault-delay-ms-per-segment", str(delay_ms))

    def stop(self, name):
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        if process.wait(WAIT_S) != 0:
            self.problems.append(f"{name} ended with {process.returncode}: {self.log(name)[-500:]}")

    def expected(self):
        self.rows = []
        for number, condition in enumerate(CONDITIONS):
            output = self.folder / f"expected{number}.csv"
            self.run("earlier", "scan", "--dataset", "market", "--where", condition, *SELECT, "--quiet",
                     "--output", str(output))
            self.rows.append(read_rows(output))

    def submit(self, which, url, number):
        ended = self.run(which, "scan", "--coordinator", url, "--dataset", "market", "--where", CONDITIONS[number],
                         *SELECT, "--detach")
        self.scans += 1
        return (ended.stdout.strip().split() or ["none"])[-1], number

    def check(self, url, accepted, which="present"):
        for scan, number in accepted:
            output = self.folder / f"{scan}.csv"
            until = time.monotonic() + WAIT_S
            while True:
                ended = self.run(which, "results", scan, "--coordinator", url, "--output", str(output), "--quiet", check=False)
                if ended.returncode == 0 or time.monotonic() > until:
                    break
                time.sleep(0.3)
            if ended.returncode != 0:
                self.problems.append(f"scan {scan} has no answer: {ended.stderr.strip()}")
            elif read_rows(output) != self.rows[number]:
                self.problems.append(f"scan {scan} has other rows than '{CONDITIONS[number]}' in one process")

    def end(self):
        for process in self.processes.values():
            process.kill()
            process.wait()


def read_rows(path):
    """Rows of an answer, numbers as numbers: the two executables write the same number with other digits."""
    def value(text):
        try:
            return float(text)
        except ValueError:
            return text
    with open(path, newline="") as file:
        lines = [line for line in file if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    keep = ("symbol", "status", "close", "top")
    return [tuple(value(row[key]) for key in keep if key in row) for row in rows]


def one_round(number, arguments, folder):
    world = Round(arguments.earlier, arguments.executable, folder)
    try:
        world.run("earlier", "synth", "--symbols", "1200", "--bars", "120", "--seed", str(number), "--dataset", "market")
        world.expected()
        if not all(world.rows):
            sys.exit(f"no rows to compare: {world.problems}")
        world.start_etcd(arguments.etcd)
        old = [world.coordinator(f"c{i}", "earlier") for i in (1, 2)]
        for i in (1, 2):
            world.worker(f"w{i}", "earlier")
        accepted = [world.submit("earlier", old[0], i % 3) for i in range(4)]
        # Coordinators first: a new one before an old one stops.
        new = [world.coordinator(f"n{i}", "present") for i in (1, 2)]
        accepted += [world.submit("earlier", old[1], i % 3) for i in range(2)]
        world.stop("c1")
        accepted += [world.submit("earlier", new[0], i % 3) for i in range(2)]
        world.stop("c2")
        print(f"round {number}: coordinators replaced, {len(accepted)} scans accepted", flush=True)
        # New coordinators with the workers of before.
        accepted += [world.submit("present", new[1], i % 3) for i in range(3)]
        world.check(new[0], accepted[-1:])
        # Then the workers, one at a time, while scans run.
        for i in (1, 2):
            accepted += [world.submit("present", new[0], i) for _ in range(2)]
            world.worker(f"m{i}", "present")
            world.stop(f"w{i}")
        accepted += [world.submit("earlier", new[0], i % 3) for i in range(2)]
        world.check(new[1], accepted)
        # The upgrade has to have met scans that ran.
        logs = "".join(world.log(name) for name in ("n1", "n2"))
        taken, anew = logs.count("goes on with a scan"), logs.count("begins a scan anew")
        if taken + anew == 0:
            world.problems.append("no scan ran while coordinators were replaced")
        print(f"round {number}: workers replaced, {world.scans} scans, {taken} taken over, {anew} begun anew in another "
              f"class, {len(world.problems)} problems", flush=True)
    finally:
        world.end()
    for problem in world.problems:
        print(f"round {number}: {problem}", file=sys.stderr)
    if world.problems:
        for path in sorted(folder.glob("*.log")):
            print(f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}", file=sys.stderr)
    return world.scans, len(world.problems)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--earlier", type=pathlib.Path, required=True)
    parser.add_argument("--executable", type=pathlib.Path, default=ROOT / "target/release/trawl")
    parser.add_argument("--etcd", default=os.environ.get("TRAWL_ETCD", "etcd"))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    arguments.earlier, arguments.executable = (path.resolve() for path in (arguments.earlier, arguments.executable))
    scans, problems = 0, 0
    for number in range(1, arguments.rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            more = one_round(number, arguments, pathlib.Path(folder))
            scans, problems = scans + more[0], problems + more[1]
    print(f"{arguments.rounds} upgrades, {scans} scans, {problems} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
