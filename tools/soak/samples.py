"""What is measured while the soak runs: processes by /proc, etcd by its own calls, folders, and coordinators' metrics."""

import base64
import json
import os
import pathlib
import re
import threading
import time
import urllib.error
import urllib.request

INTERVAL_S = 5.0
MIB = 1024 * 1024
PAGE_KEYS = 1000
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
KEYS = ("scans/", "ended/", "requests/", "")  # below the cluster's name; the last is all of them
HELD = ("trawl_results_held_bytes", "trawl_plans_held_bytes")  # what a coordinator says that it holds
METRICS = ("trawl_leader", "trawl_scans_accepted_total", "trawl_scans_ended_total", *HELD, "trawl_refusals_total")


def of_process(pid):
    """Memory, threads, open files and CPU time of a process; None once it is gone."""
    folder = pathlib.Path(f"/proc/{pid}")
    try:
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        times = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        files = len(os.listdir(folder / "fd"))
        rss, anonymous = (int(status[key].split()[0]) / 1024 for key in ("VmRSS", "RssAnon"))
    except (OSError, KeyError, ValueError):
        return None
    return {"rss_mib": rss, "anon_mib": anonymous, "threads": int(status["Threads"]), "files": files,
            "cpu_s": (int(times[11]) + int(times[12])) / CLOCK_TICKS}


def of_folder(folder):
    """Files below a folder and their MiB."""
    count = size = 0
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        count, size = count + 1, size + entry.stat(follow_symlinks=False).st_size
        except FileNotFoundError:  # deleted meanwhile
            continue
    return {"files": count, "mib": size / MIB}


def metrics_of(address, names=METRICS):
    """The sum over labels of each metric, or the one with the labels that a name has; None without an answer."""
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    except OSError:
        return None
    return {name: sum(map(float, re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)", text, re.M))) for name in names}


def of_etcd(etcd, cluster):
    """MiB of the database and of what is in use, revision, and keys of the cluster."""
    try:
        status = etcd.call("/v3/maintenance/status")
        row = {"db_mib": int(status["dbSize"]) / MIB, "in_use_mib": int(status.get("dbSizeInUse", 0)) / MIB,
               "revision": int(status["header"]["revision"])}
        for part in KEYS:
            first = f"{cluster}/{part}".encode()
            last = first[:-1] + bytes([first[-1] + 1])
            key, end = (base64.b64encode(text).decode() for text in (first, last))
            answer = etcd.call("/v3/kv/range", key=key, range_end=end, count_only=True)
            row["keys_" + (part.rstrip("/") or "all")] = int(answer.get("count", 0))
    except (OSError, urllib.error.HTTPError):
        return None
    return row


def keys_of(etcd, prefix, values=False):
    """Every key below a prefix, without it, and its value if `values`; page by page."""
    key, end = prefix.encode(), prefix.encode()[:-1] + bytes([prefix.encode()[-1] + 1])
    found = {}
    while True:
        first, last = (base64.b64encode(text).decode() for text in (key, end))
        answer = etcd.call("/v3/kv/range", key=first, range_end=last, limit=PAGE_KEYS, keys_only=not values)
        page = answer.get("kvs", [])
        for row in page:
            key = base64.b64decode(row["key"])
            found[key.decode().removeprefix(prefix)] = base64.b64decode(row.get("value", ""))
        if not page or not answer.get("more"):
            return found
        key += b"\0"


def strays(etcd, cluster):
    """What is left of scans that have no record any more: folders of the result store, and idempotency keys."""
    folders = set(os.listdir(cluster.results / "scans"))
    opened = {key.split("/")[0] for key in keys_of(etcd, f"{cluster.name}/scans/")}
    records = opened | set(keys_of(etcd, f"{cluster.name}/ended/"))
    requests = keys_of(etcd, f"{cluster.name}/requests/", values=True)
    without = [key for key, value in requests.items() if json.loads(value)["scan"] not in records]
    return {"records": len(records), "folders": sorted(folders - records), "requests": sorted(without)}


class Sampler(threading.Thread):
    """Samples every few seconds, into `rows` and a file of JSON lines."""

    interval = INTERVAL_S

    def __init__(self, cluster, etcd, load, path):
        super().__init__(daemon=True)
        self.cluster, self.etcd, self.load, self.path = cluster, etcd, load, path
        self.rows, self.begin, self.over = [], time.monotonic(), threading.Event()

    def now(self):
        return time.monotonic() - self.begin

    def sample(self):
        processes = [self.etcd, *self.cluster.processes()]
        alive = {process.name: process.child.pid for process in processes if process.child}
        row = {"t": self.now(), "processes": {name: of_process(pid) for name, pid in alive.items()}}
        row["etcd"] = of_etcd(self.etcd, self.cluster.name)
        row["store"] = of_folder(self.cluster.results)
        row["pins"] = sum(of_folder(folder)["files"] for folder in self.cluster.data.glob("*/pins"))
        row["coordinators"] = {c.name: metrics_of(c.metrics) for c in self.cluster.coordinators if c.child}
        row["client"] = {"submitted": len(self.load.scans), "open": len(self.load.open)}
        row["load1"] = os.getloadavg()[0]
        return row

    def run(self):
        with open(self.path, "w") as file:
            while not self.over.is_set():
                self.rows.append(self.sample())
                print(json.dumps(self.rows[-1]), file=file, flush=True)
                self.over.wait(max(0.0, self.interval * len(self.rows) - self.now()))

    def stop(self):
        self.over.set()
        self.join()


def slope(points):
    """Of the line through points (t, value) with the least squares, per second; None with fewer than three points."""
    if len(points) < 3:
        return None
    mean_t, mean_v = (sum(column) / len(points) for column in zip(*points))
    spread = sum((t - mean_t) ** 2 for t, _ in points)
    return sum((t - mean_t) * (v - mean_v) for t, v in points) / spread if spread else None


def peaks(points, window):
    """The highest point of each whole window: what a saw-tooth reaches."""
    if not points:
        return []
    begin, best = points[0][0], {}
    for t, value in points:
        number = int((t - begin) // window)
        if number not in best or value > best[number][1]:
            best[number] = (t, value)
    whole = int((points[-1][0] - begin) // window)
    return [best[number] for number in sorted(best) if number < whole]
