"""How a cluster of three workers grows with the number of symbols: time, CPU time and memory of the coordinator and of the client.

Each size has a cluster of its own, so that the highest memory of its processes is that of this size. The client is `trawl scan`, which writes
the whole answer to /dev/null. The exponents are slopes of straight lines through logarithms (1: twice the symbols, twice the cost).
"""

import argparse
import json
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
SCAN = ["--where", "close > sma(close, 50)", "--rank", "close", "--select", "close", "--ephemeral", "--fresh", "--output", "-", "--format", "csv"]


def processes(parent: int) -> dict[str, list[int]]:
    """The children of a process by what they are: coordinator, worker, etcd."""
    found: dict[str, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) != parent:
                continue
            words = (entry / "cmdline").read_bytes().decode().split("\0")
        except (OSError, IndexError):
            continue
        name = next((name for name in ("coordinator", "worker") if name in words), "etcd")
        found.setdefault(name, []).append(int(entry.name))
    return found


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def peak_bytes(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def client(trawl: str, url: str, dataset: str) -> dict[str, float]:
    began = time.monotonic()
    process = subprocess.Popen([trawl, "scan", "--coordinator", url, "--dataset", dataset, *SCAN], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"the scan of {dataset} ended with {process.returncode}")
    return {"seen_s": time.monotonic() - began, "client_cpu_s": usage.ru_utime + usage.ru_stime, "client_rss_bytes": usage.ru_maxrss * 1024}


def measure(trawl: str, etcd: str, symbols: int, bars: int, repeats: int, scratch: Path) -> dict[str, float]:
    dataset = f"s{symbols}"
    subprocess.run([trawl, "data", "synth", "--symbols", str(symbols), "--bars", str(bars), "--seed", "1", "--dataset", dataset], check=True, stdout=subprocess.DEVNULL)
    up = subprocess.Popen(
        [trawl, "cluster", "up", "--workers", "3", "--threads", "1", "--listen", "127.0.0.1:0", "--etcd-binary", etcd],
        stdout=subprocess.PIPE, stderr=(scratch / "log").open("w"), text=True)
    try:
        line = next(line for line in up.stdout if line.startswith("ready cluster"))
        url = next(word[4:] for word in line.split() if word.startswith("url="))
        of = processes(up.pid)
        [coordinator] = of["coordinator"]
        idle = peak_bytes(coordinator)
        client(trawl, url, dataset)
        before = cpu_s(coordinator), sum(map(cpu_s, of["worker"]))
        runs = [client(trawl, url, dataset) for _ in range(repeats)]
        after = cpu_s(coordinator), sum(map(cpu_s, of["worker"]))
        found = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        found |= {
            "symbols": symbols,
            "bars": bars,
            "coordinator_cpu_s": (after[0] - before[0]) / repeats,
            "workers_cpu_s": (after[1] - before[1]) / repeats,
            "coordinator_idle_rss_bytes": idle,
            "coordinator_rss_bytes": peak_bytes(coordinator),
            "largest_worker_rss_bytes": max(map(peak_bytes, of["worker"])),
        }
        return found
    finally:
        up.send_signal(2)
        up.wait()
        shutil.rmtree(Path(os.environ["TRAWL_DATA_ROOT"]) / dataset, ignore_errors=True)


def slope(points: list[tuple[float, float]]) -> float:
    """Of the least-squares line through the logarithms."""
    xs, ys = [math.log(x) for x, _ in points], [math.log(max(y, 1e-9)) for _, y in points]
    mean_x, mean_y = statistics.fmean(xs), statistics.fmean(ys)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys)) / sum((x - mean_x) ** 2 for x in xs)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trawl", required=True)
    parser.add_argument("--etcd", required=True)
    parser.add_argument("--sizes", default="25000,50000,100000,200000")
    parser.add_argument("--bars", type=int, default=250)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["TRAWL_DATA_ROOT"] = f"{scratch}/data"
        os.environ["TRAWL_LOG"] = "warn"
        for size in args.sizes.split(","):
            rows.append(measure(args.trawl, args.etcd, int(size), args.bars, args.repeats, Path(scratch)))
            row = rows[-1]
            print(f"{row['symbols']:>8} symbols: seen {row['seen_s']:.2f} s; CPU s: client {row['client_cpu_s']:.2f}, coordinator "
                  f"{row['coordinator_cpu_s']:.2f}, workers {row['workers_cpu_s']:.2f}; MiB: client {row['client_rss_bytes'] / 2**20:.0f}, "
                  f"coordinator {row['coordinator_rss_bytes'] / 2**20:.0f}, largest worker {row['largest_worker_rss_bytes'] / 2**20:.0f}", flush=True)
    keys = ["seen_s", "client_cpu_s", "coordinator_cpu_s", "workers_cpu_s", "client_rss_bytes", "coordinator_rss_bytes"]
    exponents = {key: slope([(row["symbols"], row[key]) for row in rows]) for key in keys} if len(rows) > 1 else {}
    for key, exponent in exponents.items():
        print(f"{key} grows with symbols to the power of {exponent:.3f}")
    processor = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    report = {"benchmark": "symbols", "processor": processor, "cores": os.cpu_count(), "workers": 3, "sizes": rows, "exponents": exponents}
    Path(args.out).write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
