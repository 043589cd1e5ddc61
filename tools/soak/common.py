"""What the programmes of this folder share: how a cluster begins, who leads, and how results are written."""

import hashlib
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
sys.path.insert(0, str(ROOT / "tools" / "observability"))

from processes import Etcd
from samples import metrics_of

COORDINATORS = 2
SYMBOLS, BARS = 500, 500
ETCD_FLAGS = ("auto-compaction-mode", "auto-compaction-retention", "snapshot-count")


def metric(address, name):
    """One metric with its labels; None without an answer."""
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
            found = re.search(rf"^{re.escape(name)} (\S+)", answer.read().decode(), re.M)
    except OSError:
        return None
    return found and float(found.group(1))


def leader(cluster):
    """The coordinator that leads, None while there is none."""
    for coordinator in cluster.coordinators:
        if coordinator.child and (metrics_of(coordinator.metrics) or {}).get("trawl_leader") == 1:
            return coordinator
    return None


def ready(cluster, workers):
    first = leader(cluster)
    return first and metric(first.metrics, 'trawl_workers{state="serving"}') == workers


def etcd_flags():
    """What deploy/cluster/compose.yaml starts etcd with."""
    return dict(re.findall(r"^ +- --([\w-]+)=(\S+)$", (ROOT / "deploy/cluster/compose.yaml").read_text(), re.M))


def start_etcd(program, folder):
    flags = etcd_flags()
    etcd = Etcd(program, folder, flags["quota-backend-bytes"])
    etcd.start(*(f"--{name}={flags[name]}" for name in ETCD_FLAGS))
    return etcd


def healthy(etcd):
    try:
        return etcd.call("/v3/maintenance/status")
    except OSError:
        return None


def synthesize(trawl, data, seed):
    """The dataset `market`."""
    synth = ["data", "synth", "--symbols", SYMBOLS, "--bars", BARS, "--seed", seed, "--dataset", "market"]
    subprocess.run(list(map(str, [trawl, *synth, "--data-root", data])), check=True, stdout=subprocess.DEVNULL)


def empty_folder(parser, keep, what):
    """The folder of `--keep`, or a temporary one; it has to be empty."""
    folder = keep or pathlib.Path(tempfile.mkdtemp(prefix=f"trawl-{what}-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        parser.error(f"--keep {folder}: an empty folder is expected, because an earlier {what}'s etcd knows its keys")
    return folder.resolve()


def machine():
    model = re.search(r"^model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return {"architecture": platform.machine(), "processor": model.group(1) if model else "", "cores": len(os.sched_getaffinity(0))}


def measured(trawl):
    """What was measured, and on which machine."""
    version = subprocess.run([trawl, "--version"], capture_output=True, text=True).stdout.strip()
    return {"version": version, "executable_sha256": hashlib.sha256(trawl.read_bytes()).hexdigest(), "machine": machine()}


def dumped(result):
    """JSON with lists of numbers on one line each."""
    number = r"(?:[-\d.e]+|null)"
    one_line = lambda found: re.sub(r"\s+", " ", found.group()).replace("[ ", "[").replace(" ]", "]")
    return re.sub(rf"\[\s+{number}(?:,\s+{number})*\s+\]", one_line, json.dumps(result, indent=1)) + "\n"
