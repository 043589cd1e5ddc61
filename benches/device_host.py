#!/usr/bin/env python3
"""What the host does for scans whose bars a device has: etcd, a coordinator and a worker, whose device is that of the driver for tests.

    benches/device_host.py --trawl FILE [--before FILE] --etcd FILE [--jobs days,minutes,evicted] [--scans 15] [--threads 2] [--scratch DIR] [--out FILE]

Kernels of that driver do nothing while there is a file (`blank`), so that what is left is the host's work: laying, calls of the driver, reading
values, rows. Times of the device itself are not in it, and none of a real one; the result says "simulated". Answers are arbitrary: they are
compared by tests, not here. The scans of a job differ in a constant, so that no answer is known, and its kernels are not compiled again.

Of each job: seconds of a scan as its caller sees it (median), CPU seconds of the worker, bytes that it read of files, and its memory. With
--before an earlier executable takes turns with it. The result is kept as benches/results/device-host-DATE.json, of fewer than 15 scans in target/.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benches/jobs"), str(ROOT / "benches")]
import report
from pipeline import free_port

SCREEN = ["sma(close,20)", "ema(close,20)", "wma(close,20)", "rsi(close,14)", "macd(close,12,26,9).hist", "bbands(close,20,2).upper", "atr(14)",
          "stoch().k", "adx(14)", "cci(20)", "obv()", "vwap()", "mfi(14)", "kama(close,10)", "donchian(20).upper"]
# Of each job: symbols, bars, timeframe, what is selected, bytes of the worker's cache.
JOBS = {
    "days": (10_000, 2_000, "1d", SCREEN, 4 << 30),
    "minutes": (500, 100_000, "1m", ["close", "rsi(close,14)"], 4 << 30),
    "evicted": (500, 100_000, "1m", ["close", "rsi(close,14)"], 256 << 20),
}
SCANS_KEPT = 15
WAIT_S = 120
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def started(stack, command, folder, name, ready, environment):
    """A process that is stopped at the end, and the line by which it said that it is ready."""
    log = folder / f"{name}.log"
    with open(log, "wb") as to:
        running = subprocess.Popen([str(word) for word in command], stdout=to, stderr=to, env=environment)
    stack.callback(running.wait)
    stack.callback(running.terminate)
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        for line in log.read_text(errors="replace").splitlines():
            if ready in line:
                return running.pid, line
        if running.poll() is not None:
            break
        time.sleep(0.05)
    sys.exit(f"{name} is not ready: see {log}")


def used(pid):
    """CPU seconds and bytes read of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    io = dict(line.split(": ") for line in pathlib.Path(f"/proc/{pid}/io").read_text().splitlines())
    return (int(fields[11]) + int(fields[12])) * TICK_S, int(io["rchar"])


def resident_mb(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))


def scanned(trawl, options, job, root, scratch):
    """Figures of a job's scans by one executable."""
    _, _, _, select, cache = JOBS[job]
    blank, port, clients = scratch / "blank", free_port(), free_port()
    blank.unlink(missing_ok=True)
    driver = subprocess.run([ROOT / "tools/get-test-driver"], check=True, capture_output=True, text=True).stdout.strip()
    own = os.environ | {"TRAWL_CUDA_LIBRARIES": driver, "TRAWL_TEST_DRIVER": f"memory=16000000000 kernel_us=1 blank={blank}",
                        "XDG_CACHE_HOME": str(scratch / "cache"), "XDG_STATE_HOME": str(scratch / "state")}
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir=scratch)))
        peers = free_port()
        etcd = [options.etcd, "--data-dir", folder / "etcd", "--listen-client-urls", f"http://127.0.0.1:{clients}", "--advertise-client-urls",
                f"http://127.0.0.1:{clients}", "--listen-peer-urls", f"http://127.0.0.1:{peers}", "--initial-advertise-peer-urls",
                f"http://127.0.0.1:{peers}", "--initial-cluster", f"default=http://127.0.0.1:{peers}"]
        started(stack, etcd, folder, "etcd", "ready to serve client requests", own)
        etcd = ["--etcd", f"http://127.0.0.1:{clients}", "--data-root", root]
        started(stack, [trawl, "coordinator", *etcd, "--listen", f"127.0.0.1:{port}"], folder, "coordinator", "ready coordinator", own)
        words = [trawl, "worker", *etcd, "--backend", "cuda", "--threads", options.threads, "--cache-bytes", cache, "--listen", "127.0.0.1:0"]
        pid, _ = started(stack, words, folder, "worker", "ready worker", own)
        blank.touch()

        def scan(constant):
            words = [trawl, "scan", "--coordinator", f"http://127.0.0.1:{port}", "--dataset", job_dataset(job), "--where", f"close > {constant}",
                     "--limit", "10", "--output", folder / "rows.csv"]
            words += [word for item in select for word in ("--select", item)]
            began = time.monotonic()
            ended = subprocess.run([str(word) for word in words], env=own, capture_output=True, text=True)
            if ended.returncode:
                sys.exit(f"a scan ended with {ended.returncode}: {ended.stderr[-2000:]}")
            return time.monotonic() - began

        # Kernels are compiled, bars are copied.
        for at in range(3):
            scan(0.001 * (at + 1))
        time.sleep(options.settle_s)
        scan(0.004)
        before, times = used(pid), []
        for at in range(options.scans):
            times.append(scan(0.005 + 0.001 * at))
        after = used(pid)
        return {
            "scan_s": round(statistics.median(times), 4),
            "least_s": round(min(times), 4),
            "worker_cpu_s": round((after[0] - before[0]) / options.scans, 4),
            "read_bytes": (after[1] - before[1]) // options.scans,
            "worker_resident_mb": resident_mb(pid),
            "scans": options.scans,
        }


def job_dataset(job):
    return "minutes" if job == "evicted" else job


def market(trawl, job, root):
    symbols, bars, timeframe, _, _ = JOBS[job]
    if not (root / job_dataset(job)).exists():
        words = ["data", "synth", "--dataset", job_dataset(job), "--symbols", symbols, "--bars", bars, "--timeframe", timeframe, "--data-root", root]
        subprocess.run([str(word) for word in [trawl, *words]], check=True, stdout=subprocess.DEVNULL)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--trawl", type=pathlib.Path, required=True)
    arguments.add_argument("--before", type=pathlib.Path)
    arguments.add_argument("--etcd", type=pathlib.Path, required=True)
    arguments.add_argument("--jobs", default=",".join(JOBS))
    arguments.add_argument("--scans", type=int, default=SCANS_KEPT)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--settle-s", type=float, default=5)
    arguments.add_argument("--scratch", type=pathlib.Path, default=ROOT / "target/device-host")
    arguments.add_argument("--out", type=pathlib.Path)
    options = arguments.parse_args()
    unknown = [job for job in options.jobs.split(",") if job not in JOBS]
    if unknown:
        arguments.error(f"no job {', '.join(unknown)}: there are {', '.join(JOBS)}")
    scratch = options.scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    executables = [("before", options.before)] if options.before else []
    executables.append(("now", options.trawl))
    found = {"benchmark": "device-host", "date": f"{datetime.date.today()}", "commit": report.commit(ROOT), "machine": {"processor": report.processor(), "cores": os.cpu_count()},
             "simulated": "the device is that of the driver for tests, whose kernels do nothing: the host's work alone", "threads": options.threads, "jobs": []}
    for job in options.jobs.split(","):
        market(options.trawl.resolve(), job, scratch / "data")
        row = {"job": job, "symbols": JOBS[job][0], "bars": JOBS[job][1], "outputs": len(JOBS[job][3]), "cache_bytes": JOBS[job][4]}
        for name, trawl in executables:
            row[name] = scanned(trawl.resolve(), options, job, scratch / "data", scratch)
            print(job, name, json.dumps(row[name]), flush=True)
        found["jobs"].append(row)
    kept = options.scans >= SCANS_KEPT and set(JOBS) == set(options.jobs.split(","))
    out = options.out or (ROOT / "benches/results" if kept else scratch) / f"device-host-{found['date']}.json"
    out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"kept in {out}")


if __name__ == "__main__":
    main()
