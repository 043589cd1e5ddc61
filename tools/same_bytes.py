#!/usr/bin/env python3
"""Shows that a large scan gives the same bytes however it is run, and how long each way takes.

    tools/same_bytes.py [--symbols 10000] [--bars 1000] [--executable target/release/trawl]

A synthetic market is made in a temporary directory and scanned in one process (1 shard, 7 shards, one per group; one
thread and all), then through a coordinator with one and with three workers, at last with a worker killed (-9) in the
middle. All --output files must be equal; exit code 1 otherwise. The tests do the same with a smaller market.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FORMATS = ("csv", "json", "parquet", "arrow")
START_TIMEOUT_S = 60.0
SCAN_TIMEOUT_S = 300.0
CLAUSES = [
    "--dataset", "market", "--universe", "close > 2 and sma(volume, 20) > 1000",
    "--where", "within(crosses_above(ema(close, 12), sma(close, 26)), 5) or rsi() < 35 or adx(14) > 30",
    "--rank", "round(rsi(close, 14) / 10) desc, close asc", "--limit", "500",
    "--select", "close", "--select", "macd().hist as hist", "--select", "roc(close, 20)", "--quiet",
]


class Show:
    def __init__(self, executable, folder):
        self.executable, self.folder = str(executable), folder
        self.environment = dict(os.environ, TRAWL_DATA_ROOT=str(folder / "data"), TRAWL_FRESH="1")
        self.reference, self.same = None, True

    def start(self, *arguments, log=None):
        return subprocess.Popen([self.executable, *arguments], env=self.environment, stdin=subprocess.DEVNULL,
                                stdout=log or subprocess.DEVNULL, stderr=subprocess.STDOUT if log else None)

    def run(self, *arguments):
        process = self.start(*arguments)
        if process.wait(SCAN_TIMEOUT_S) != 0:
            sys.exit(f"trawl {' '.join(arguments)}: exit code {process.returncode}")

    def scans(self, label, *options, formats=FORMATS):
        """One scan for each format; all bytes must be those of the first way."""
        digests, start = {}, time.monotonic()
        for kind in formats:
            output = self.folder / f"answer.{kind}"
            self.run("scan", *CLAUSES, "--output", str(output), *options)
            digests[kind] = hashlib.sha256(output.read_bytes()).hexdigest()
        self.compare(label, digests, (time.monotonic() - start) / len(formats))

    def compare(self, label, digests, seconds):
        if self.reference is None:
            self.reference = digests
        same = all(self.reference[kind] == digest for kind, digest in digests.items())
        self.same &= same
        print(f"{label:<44}{seconds:>7.2f} s  {digests['csv'][:16]}  {'same' if same else 'OTHER BYTES'}", flush=True)

    def listening(self, name, *arguments):
        """Starts a server and waits until it prints its address."""
        path = self.folder / f"{name}.log"
        process = self.start(*arguments, log=open(path, "wb"))
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and process.poll() is None:
            found = re.search(r"^ready .*127\.0\.0\.1:([1-9]\d*)", path.read_text(errors="replace"), re.MULTILINE)
            if found:
                return process, f"http://127.0.0.1:{found.group(1)}"
            time.sleep(0.02)
        sys.exit(f"{name} did not start:\n{path.read_text(errors='replace')}")


def cluster(show, etcd, count, then):
    """A coordinator and `count` workers for as long as `then(url, workers)` runs."""
    common = ["--etcd", etcd, "--cluster-name", f"same-bytes-{os.getpid()}-{count}", "--listen", "127.0.0.1:0"]
    coordinator, url = show.listening("coordinator", "coordinator", *common)
    processes = [coordinator]
    try:
        for number in range(1, count + 1):
            processes.append(show.listening(f"w{number}", "worker", *common, "--id", f"w{number}")[0])
        then(url, processes[1:])
    finally:
        for process in processes:
            process.kill()
            process.wait()


def killed(show, url, workers):
    """A stopped worker accepts work and answers nothing, so the scan is still running when the worker is killed."""
    start = time.monotonic()
    workers[1].send_signal(signal.SIGSTOP)
    output, report = show.folder / "killed.csv", show.folder / "killed.report.json"
    scan = show.start("scan", *CLAUSES, "--coordinator", url, "--shards", "per-group", "--output", str(output),
                      "--report", str(report))
    time.sleep(0.5)
    if scan.poll() is not None:
        sys.exit("the scan ended before the worker was killed")
    workers[1].kill()
    if scan.wait(SCAN_TIMEOUT_S) != 0:
        sys.exit(f"the scan with a killed worker ended with {scan.returncode}")
    lost = json.loads(report.read_text())["workers_lost"]
    digest = {"csv": hashlib.sha256(output.read_bytes()).hexdigest()}
    show.compare(f"3 workers, {', '.join(lost) or 'NONE'} killed in the middle", digest, time.monotonic() - start)
    show.same &= bool(lost)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--symbols", type=int, default=10_000)
    arguments.add_argument("--bars", type=int, default=1_000)
    arguments.add_argument("--executable", type=pathlib.Path, default=ROOT / "target/release/trawl")
    options = arguments.parse_args()
    etcd_path = subprocess.run([ROOT / "tools/get-etcd"], check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory(prefix="trawl-same-bytes-") as folder:
        show = Show(options.executable.resolve(), pathlib.Path(folder))
        show.run("synth", "--symbols", str(options.symbols), "--bars", str(options.bars), "--seed", "1",
                 "--dataset", "market")
        print(f"{options.symbols} symbols x {options.bars} bars; seconds of one scan; SHA-256 of the CSV")
        for shards in ("1", "7", "per-group"):
            show.scans(f"embedded, {shards} shards", "--shards", shards)
        show.scans("embedded, 1 thread", "--threads", "1")
        keeper = subprocess.Popen([sys.executable, ROOT / "tools/shared_etcd.py", etcd_path], text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            etcd = keeper.stdout.readline().strip()
            for count in (1, 3):
                def ways(url, workers):
                    for shards in ("1", "7", "per-group"):
                        show.scans(f"{count} workers, {shards} shards", "--coordinator", url, "--shards", shards)
                    if len(workers) == 3:
                        killed(show, url, workers)
                cluster(show, etcd, count, ways)
        finally:
            keeper.stdin.close()
            keeper.wait()
    print("the same bytes every way" if show.same else "NOT the same bytes")
    sys.exit(not show.same)


if __name__ == "__main__":
    main()
