#!/usr/bin/env python3
"""From a bucket to MACD: flat files of many symbols in a bucket of a slow store are imported, and a scan for crossings of the MACD then runs on
the dataset, which is in the bucket too: all files fetched before it, by the threads that compute, and ahead of them.

    benches/pipeline.py --trawl FILE --store-python PYTHON [--symbols 4000] [--days 250] [--delay-ms 50] [--mb-per-s 100] [--repeats 3]
                        [--threads N] [--device] [--scratch DIR] [--out FILE]

The store is moto's server of S3 behind a proxy, both on this machine: each request takes the delay more, all share the bandwidth. PYTHON has moto
(`tools/get-venv soak/store`). With --device the GPU computes, or where there is none the driver for tests, whose clock is modelled: then the result
says "simulated", and its times are those of the fetching and of the order of things, and measure no device.

The result is kept as benches/results/pipeline-DATE.json; of fewer symbols than 4,000 or fewer days than 250 in target/.
"""

import argparse
import contextlib
import datetime
import gzip
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benches/jobs"), str(ROOT / "tools/soak")]
import report
from slow_store import ask

SYMBOLS, DAYS = 4_000, 250
BUCKET, FLAT = "market-data", "raw/us_stocks_sip/day_aggs_v1"
START_S = 60  # longest that the store may take to answer
HEADER = "ticker,volume,open,close,high,low,window_start,transactions\n"
# A folder of the kernel's that is there with NVIDIA's driver.
GPU = pathlib.Path("/proc/driver/nvidia")


def flat_files(folder, symbols, days):
    """A file of each weekday, the same for the same numbers; returns how many rows."""
    chance, date = random.Random(1), datetime.date(2022, 1, 2)
    close = [100.0] * symbols
    for _ in range(days):
        date += datetime.timedelta(3 if date.weekday() == 4 else 1)
        midnight = datetime.datetime(date.year, date.month, date.day, 5, tzinfo=datetime.timezone.utc)
        start, lines = int(midnight.timestamp()) * 10**9, [HEADER]
        for at in range(symbols):
            close[at] = max(round(close[at] * (1 + chance.gauss(0, 0.02)), 2), 1.0)
            last = close[at]
            lines.append(f"T{at:05},{chance.randrange(1, 10**6)},{last},{last},{round(last + 0.5, 2)},{round(last - 0.5, 2)},{start},7\n")
        file = folder / f"{date:%Y/%m}/{date}.csv.gz"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(gzip.compress("".join(lines).encode(), 6, mtime=0))
    return symbols * days


def free_port():
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return str(chosen.getsockname()[1])


@contextlib.contextmanager
def store(python, folder):
    """The variables of a bucket, and a function that sets the faults of its proxy."""
    port, listen, control = free_port(), free_port(), free_port()
    commands = [
        ("store", [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", port]),
        ("proxy", [sys.executable, ROOT / "tools/soak/slow_store.py", "--listen", listen, "--control", control, "--to", port]),
    ]
    with contextlib.ExitStack() as stack:
        for name, command in commands:
            log = stack.enter_context(open(folder / f"{name}.log", "wb"))
            running = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"TMPDIR": str(folder)})
            stack.callback(running.wait)
            stack.callback(running.kill)
        make = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
        for left in range(START_S * 10, -1, -1):
            try:
                with urllib.request.urlopen(make, timeout=10):
                    ask(int(control), {})
                break
            except (OSError, ValueError, urllib.error.HTTPError):
                if not left:
                    sys.exit(f"no store: see {folder}/store.log and proxy.log")
                time.sleep(0.1)
        variables = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{listen}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }
        yield variables, lambda **settings: ask(int(control), settings)


def device(options):
    """Variables and words with which a device computes."""
    if not options.device:
        return {}, ["--backend", "cpu"]
    variables = {}
    if not GPU.exists() and "TRAWL_CUDA_LIBRARIES" not in os.environ:
        driver = subprocess.run([ROOT / "tools/get-test-driver"], check=True, capture_output=True, text=True).stdout.strip()
        variables = {"TRAWL_CUDA_LIBRARIES": driver, "TRAWL_TEST_DRIVER": os.environ.get("TRAWL_TEST_DRIVER", "memory=2000000000")}
    return variables, ["--backend", "cuda"]


def run(command, variables):
    """What a command printed as JSON; its messages are shown as they come."""
    began = time.monotonic()
    ended = subprocess.run([str(word) for word in command], env=os.environ | variables, stdout=subprocess.PIPE)
    if ended.returncode:
        sys.exit(f"{' '.join(str(word) for word in command[:4])} ended with {ended.returncode}")
    return json.loads(ended.stdout), round(time.monotonic() - began, 3)


def measured(options, scratch):
    flat = scratch / "flat"
    print(f"making flat files of {options.symbols} symbols on {options.days} days", file=sys.stderr)
    rows = flat_files(flat, options.symbols, options.days)
    with store(options.store_python, scratch) as (variables, faults):
        subprocess.run([options.store_python, ROOT / "tests/python/s3_put.py", flat, BUCKET, FLAT], env=os.environ | variables, check=True)
        slow = {"delay_s": options.delay_ms / 1e3, "bytes_per_s": options.mb_per_s * 1e6}
        faults(**slow)
        root = ["--data-root", f"s3://{BUCKET}/data", "--data-cache", scratch / "cache"]
        words = ["data", "import", "polygon-flat", f"s3://{BUCKET}/{FLAT}", "--dataset", "flat", "--calendar", "weekdays", "--json", *root]
        print("importing them from the bucket", file=sys.stderr)
        imported, import_s = run([options.trawl, *words], variables)
        if (bars := imported["import"]["bars"]) != rows:
            sys.exit(f"{bars} bars, not {rows}")
        own, backend = device(options)
        threads = ["--threads", options.threads] if options.threads else []
        words = ["bench", "pipeline", "--dataset", "flat", "--repeats", options.repeats, "--json", *backend, *threads, *root]
        scan, _ = run([options.trawl, *words], variables | own)
    version = subprocess.run([options.trawl, "--version"], capture_output=True, text=True).stdout.strip()
    found = {
        "benchmark": "pipeline",
        "date": datetime.date.today().isoformat(),
        "commit": report.commit(ROOT),
        "version": version,
        "machine": {"processor": report.processor(), "cores": os.cpu_count(), "load_at_the_end": round(os.getloadavg()[0], 1)},
        "store": {"what": "moto's server of S3 behind a proxy, both on this machine"} | slow,
        "rows": rows,
        "files": options.days,
        "import": {"wall_s": import_s, "bytes_fetched": imported["days"]["bytes_fetched"]},
        "scan": scan,
    }
    if scan["simulated"]:
        found["simulated"] = "the device is that of the driver for tests, whose clock is modelled: no device was measured"
    return found


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--trawl", required=True, type=pathlib.Path)
    arguments.add_argument("--store-python", required=True, type=pathlib.Path)
    arguments.add_argument("--symbols", type=int, default=SYMBOLS)
    arguments.add_argument("--days", type=int, default=DAYS)
    arguments.add_argument("--delay-ms", type=float, default=50)
    arguments.add_argument("--mb-per-s", type=float, default=100)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--threads", type=int)
    arguments.add_argument("--device", action="store_true")
    arguments.add_argument("--scratch", type=pathlib.Path)
    arguments.add_argument("--out", type=pathlib.Path)
    options = arguments.parse_args()
    if options.scratch:
        options.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trawl-pipeline-", dir=options.scratch) as scratch:
        found = measured(options, pathlib.Path(scratch))
    is_whole = options.symbols >= SYMBOLS and options.days >= DAYS
    out = options.out or ROOT / ("benches/results" if is_whole else "target") / f"pipeline-{found['date']}.json"
    out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    ways = {way: found["scan"][way]["median_s"] for way in ("sequential", "overlapped", "prefetched")}
    simulated = " (simulated device)" if found["scan"]["simulated"] else ""
    print(f"{ways}{simulated}; kept in {out}", file=sys.stderr)


if __name__ == "__main__":
    main()
