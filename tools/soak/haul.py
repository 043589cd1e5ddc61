#!/usr/bin/env python3
"""Many bytes on a real cluster with a slow result store: the memory of a coordinator has to be what its results explain.

    tools/soak/haul.py --trawl TRAWL [--scans 1000] [--clients 200] [--answers 8] [--answer-mib 64] [--keep DIR]

etcd, two coordinators and the workers are real processes on loopback; the results are in a bucket of moto's server of S3, behind
a proxy of ours that delays each request, limits the bandwidth, and for some seconds answers 503. The phases:

  idle     nothing, for the memory that everything is compared with
  many     1,000 scans at once, detached and followed ones; the store answers 503 meanwhile
  stopped  200 clients open streams of answers of 64 MiB and stop: half of them read no more, half are in a process in state T;
           others go on scanning
  ended    a stopped client's stream ends after 60 s; the clients are still there
  gone     the clients are killed
  large    answers of 64 MiB, several at once, each document twice
  again    each of these answers read again, from the store if it is no longer in memory
  end      nothing, for what remains

Every second memory and metrics are read. Exit code 1 if a scan was lost, two equal scans differ, a stopped client kept its
stream, or a coordinator used more than the chart's limit, or more above its idle memory than 1.3 times the results that its
metrics say it holds and 64 MiB (bounds.py).
"""

import argparse
import asyncio
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request

from client import PROTOS, Load, Scan
from common import COORDINATORS, ROOT, SYMBOLS, TARGET, dumped, empty_folder, healthy, leader, measured, ready, start_etcd
from common import synthesize
from bounds import allowed, at_end, memory, of_scans, problems_of
from plots import draw_haul
from processes import Cluster, Process, free_port, wait_for
from samples import HELD, MIB, Sampler, metrics_of, of_process
from slow_store import ask

HERE = pathlib.Path(__file__).resolve().parent
BUCKET = "haul"
ANSWER_MIB = (50, 80)  # sizes that are called 64 MiB
MANY = {"plain": 40, "detached": 40, "cross": 10, "long": 10}  # shares of the kinds of scans
OTHERS_PER_S = 5.0  # scans a second of those who go on while others are stopped
TARGETS = 2  # scans that stopped clients watch
IDLE_S = 10.0  # at the beginning
REFUSE_AT_S = 5.0  # after the scans were submitted
STALL_S = 60.0  # CLIENT_STALL_TIMEOUT of coordinators
STALL_MORE_S = (15.0, 60.0)  # how much later to look whether a stopped client's stream has ended, at first and at last
STILL_S = 15.0  # how long clients remain after their streams ended
DRAIN_S = 420.0
PROBLEMS_SHOWN = 20
SPOOLED, OPENED = "trawl_results_spooled_bytes", "trawl_client_streams_opened_total"
ENDS = [f'trawl_client_streams_ended_total{{reason="{reason}"}}' for reason in ("complete", "client_gone", "stalled", "broken")]
COUNTS = {"accepted": "trawl_scans_accepted_total", "ended": "trawl_scans_ended_total", "refused": "trawl_refusals_total",
          "puts": "trawl_result_store_put_duration_seconds_count", "put_failures": "trawl_result_store_put_failures_total",
          "put_bytes": "trawl_result_store_put_bytes_total", "leads": "trawl_leader", "elections": "trawl_elections_won_total",
          "opened": OPENED}
BYTES = {"held_mib": HELD, "plans_mib": HELD[1:], "spooled_mib": (SPOOLED,)}
PAGES = ("Rss", "Anonymous", "AnonHugePages", "LazyFree")


class BucketCluster(Cluster):
    """A cluster whose results are in a bucket."""

    def __init__(self, *arguments, endpoint, spool, variables):
        super().__init__(*arguments)
        spool.mkdir()
        amazon = {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1"} | variables
        amazon |= {"AWS_ACCESS_KEY_ID": "haul", "AWS_SECRET_ACCESS_KEY": "haul"}
        for coordinator in self.coordinators:
            command = [part for part in coordinator.command if part != "--results-shared"]
            command[command.index("--results") + 1] = f"s3://{BUCKET}/results"
            coordinator.command = [*command, "--spool", str(spool)]
            coordinator.environment = coordinator.environment | amazon


class HaulSampler(Sampler):
    """Samples memory and what the coordinators say of it."""

    interval = 1.0

    def __init__(self, cluster, store, load, path):
        super().__init__(cluster, cluster.etcd, load, path)
        self.store, self.phases, self.pages = store, [], {}

    def phase(self, name):
        """Ends the present phase and begins another; without a name, ends the last."""
        if self.phases:
            self.phases[-1][2] = self.now()
            pages = {c.name: pages_of(c.child.pid) for c in self.cluster.coordinators if c.child}
            self.pages[self.phases[-1][0]] = {name: found for name, found in pages.items() if found}
        if name:
            self.phases.append([name, self.now(), None])
            print(f"{self.now():6.1f} s: {name}", flush=True)

    def sample(self):
        processes = [self.etcd, self.store.server, *self.cluster.processes()]
        alive = {process.name: process.child.pid for process in processes if process.child}
        row = {"t": self.now(), "processes": {name: with_peak(pid) for name, pid in alive.items()}}
        row["coordinators"] = {c.name: self.said(c) for c in self.cluster.coordinators}
        row["client"] = {"submitted": len(self.load.scans), "open": len(self.load.open)}
        row["client"]["streams"] = sum(said["opened"] - sum(said["ends"]) for said in row["coordinators"].values() if said)
        row["store"] = self.store.ask()
        row["load1"] = os.getloadavg()[0]
        return row

    def said(self, coordinator):
        found = metrics_of(coordinator.metrics, [*HELD, SPOOLED, *COUNTS.values(), *ENDS])
        if not found:
            return None
        row = {key: sum(found[name] for name in names) / MIB for key, names in BYTES.items()} | {key: found[name] for key, name in COUNTS.items()}
        return row | {"ends": [found[name] for name in ENDS]}

    def ends(self):
        """Streams that ended, by reason, summed over the coordinators; of the newest sample."""
        return [sum(said["ends"][n] for said in self.rows[-1]["coordinators"].values() if said) for n in range(len(ENDS))]


def with_peak(pid):
    """Like `of_process`, with the most since it was last asked."""
    found = of_process(pid)
    try:
        high = re.search(r"^VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
        pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")  # begins VmHWM anew
    except OSError:
        high = None
    return found and found | {"peak_mib": max(found["rss_mib"], int(high.group(1)) / 1024 if high else 0.0)}


def pages_of(pid):
    """MiB of a process by kind of page: what is counted as resident without being used is in huge or in lazily freed ones."""
    try:
        text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return None
    return {kind: int(found.group(1)) // 1024 for kind in PAGES if (found := re.search(rf"^{kind}:\s+(\d+) kB", text, re.M))}


class Store:
    """moto's server, and the slow proxy before it."""

    def __init__(self, python, folder):
        self.port, self.listen, self.control = free_port(), free_port(), free_port()
        server = [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", self.port]
        self.server = Process("store", folder / "store.log", server, os.environ | {"TMPDIR": str(folder)})
        proxy = [sys.executable, HERE / "slow_store.py", "--listen", self.listen, "--control", self.control, "--to", self.port]
        self.proxy = Process("proxy", folder / "proxy.log", proxy, dict(os.environ))
        self.endpoint = f"http://127.0.0.1:{self.listen}"

    def start(self):
        self.server.start()
        self.proxy.start()
        wait_for("the store answers", self.made, 60)

    def made(self):
        """Whether the bucket is there."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{BUCKET}", method="PUT")
        try:
            with urllib.request.urlopen(request, timeout=10):
                return self.ask()
        except (OSError, urllib.error.HTTPError):
            return None

    def ask(self, **settings):
        try:
            return ask(self.control, settings)
        except (OSError, ValueError):
            return None

    def stop(self):
        self.proxy.kill()
        self.server.kill()


def chart_limit_mib():
    """Of a coordinator's memory."""
    text = (ROOT / "helm/trawl/values.yaml").read_text()
    coordinator = re.search(r"^coordinator:\n((?:[ \n].*\n?)*)", text, re.M).group(1)
    number, unit = re.search(r"^    limits: \{.*memory: (\d+)([MG])i", coordinator, re.M).groups()
    return int(number) * {"M": 1, "G": 1024}[unit]


class Haul:
    """The phases."""

    def __init__(self, cluster, store, load, sampler, arguments):
        self.cluster, self.store, self.load, self.sampler, self.arguments = cluster, store, load, sampler, arguments
        self.scans, self.again, self.children = {}, [], []
        self.clients = {"wanted": arguments.clients, "stopped": 0, "left_open": 0, "of_others": 0, "waited_s": 0.0}

    async def run(self):
        self.load.connect()
        self.sampler.phase("idle")
        await asyncio.sleep(IDLE_S)
        phases = [("many", self.many, self.arguments.scans), ("stopped", self.stopped, self.arguments.clients),
                  ("large", self.large, self.arguments.answers), ("again", self.read_again, self.arguments.answers)]
        for name, phase, size in phases:
            if not size:
                continue
            self.sampler.phase(name)
            before = len(self.load.scans)
            await phase()
            await self.load.drained(DRAIN_S)
            self.scans[name] = self.load.scans[before:]
            self.say(name)
        self.sampler.phase("end")
        facts = {"without_end": len(self.load.open), "active_at_end": await self.load.active()}
        await asyncio.sleep(self.arguments.idle_s)
        facts["died"] = [process.name for process in self.cluster.processes() if process.child.poll() is not None]
        self.sampler.phase(None)
        await self.load.close()
        return facts

    def say(self, name):
        row = self.sampler.rows[-1]
        parts = [f"{c} {row['processes'][c]['rss_mib']:.0f}, held {said['held_mib']:.0f}" for c, said in row["coordinators"].items()
                 if said and row["processes"].get(c)]
        found = of_scans(self.scans[name])
        print(f"{self.sampler.now():6.1f} s: {name} is over: {found['outcomes']}, {found['latency_s']} s; MiB: {'; '.join(parts)}; "
              f"{len(self.load.problems)} problems; load {row['load1']:.1f}", flush=True)

    async def many(self):
        """Scans all at once; the store refuses everything for some seconds."""
        for _ in range(self.arguments.scans):
            kind = self.load.draws.choices(list(MANY), list(MANY.values()))[0]
            document = self.load.documents.draw(kind if kind in ("cross", "long") else "plain")
            self.load.begin(kind, document, time.monotonic())
        await asyncio.sleep(REFUSE_AT_S)
        await asyncio.to_thread(self.store.ask, refuse=True)
        await asyncio.sleep(self.arguments.refuse_s)
        await asyncio.to_thread(self.store.ask, refuse=False)

    def document(self, number):
        return self.load.documents.large(number, self.arguments.answer_mib * MIB, SYMBOLS)

    async def stopped(self):
        """Clients that stop while others scan."""
        for number in range(TARGETS):
            self.load.begin("plain", self.document(number), time.monotonic())
        targets = self.load.scans[-TARGETS:]
        await self.load.drained(DRAIN_S)
        self.load.over = False
        others = asyncio.create_task(self.load.run())
        await asyncio.sleep(self.sampler.interval * 2)
        before = self.sampler.ends()
        half = self.arguments.clients // 2
        begun = await asyncio.gather(self.client("reads-no-more", targets, self.arguments.clients - half),
                                     self.client("in-state-t", targets, half))
        self.children[-1].send_signal(signal.SIGSTOP)
        self.clients["stopped"] = sum(begun)
        at = time.monotonic()
        while (waited := time.monotonic() - at) < STALL_S + STALL_MORE_S[1]:
            self.look(before, waited)
            if waited > STALL_S + STALL_MORE_S[0] and not self.clients["left_open"]:
                break
            await asyncio.sleep(self.sampler.interval)
        print(f"{self.sampler.now():6.1f} s: streams of stopped clients: {self.clients}", flush=True)
        self.sampler.phase("ended")
        await asyncio.sleep(STILL_S)
        self.load.over = True
        await others
        self.look(before, self.clients["waited_s"])
        for child in self.children:
            child.kill()
            child.wait()
        self.sampler.phase("gone")

    def look(self, before, waited):
        """How many streams the coordinators have ended because a client did not read, or was not there any more."""
        ends = self.sampler.ends()
        gone, stalled = int(ends[1] - before[1]), int(ends[2] - before[2])
        found = {"gone": gone, "stalled": stalled, "left_open": max(0, self.clients["stopped"] - gone - stalled)}
        self.clients |= found | {"of_others": max(0, gone + stalled - self.clients["stopped"]), "waited_s": round(waited, 1)}

    async def client(self, name, targets, count):
        """A process of clients; how many of them have a stream."""
        addresses = ",".join(coordinator.address for coordinator in self.cluster.coordinators)
        scans, generated = ",".join(scan.id for scan in targets if scan.id), self.cluster.folder / f"generated-{name}"
        command = [sys.executable, HERE / "stopped.py", "--coordinators", addresses, "--scans", scans]
        command += ["--count", count, "--generated", generated]
        with open(self.cluster.folder / f"{name}.log", "wb") as log:
            child = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, text=True)
        self.children.append(child)
        line = await asyncio.to_thread(child.stdout.readline)
        return int(line.split()[1]) if line else 0

    async def large(self):
        """Large answers, each document twice; half of them detached, and followed later."""
        for number in range(self.arguments.answers):
            self.load.begin("detached" if number % 2 else "plain", self.document(TARGETS + number // 2), time.monotonic())

    async def read_again(self):
        """Each large answer once more, all at once."""
        for scan in self.scans["large"]:
            if scan.outcome == "done":
                again = Scan("again", scan.document, "", time.monotonic())
                again.id = scan.id
                self.again.append(again)
        await asyncio.gather(*(self.load.follow(scan) for scan in self.again))
        for scan in self.again:
            scan.ended = scan.ended or time.monotonic()


def report(arguments, haul, facts, idle, limit_mib):
    """Judges, prints, and writes the JSON and its plots. Whether everything was as it has to be."""
    rows, load, sampler = haul.sampler.rows, haul.load, haul.sampler
    problems = problems_of(load, haul.again, haul.clients, facts)
    judged = memory(rows, sampler.phases, idle, limit_mib)
    passed = not problems and all(row[key] == "ok" for row in judged for key in ("under_limit", "within_bound"))
    sizes = {key: getattr(arguments, key) for key in ("scans", "clients", "answers", "answer_mib", "workers", "seed", "delay_ms",
                                                      "mib_per_s", "refuse_s")}
    last = {name: said and {key: value for key, value in said.items() if key != "ends"}
            for name, said in rows[-1]["coordinators"].items()}
    result = {"benchmark": "haul", "date": datetime.date.today().isoformat(), **measured(arguments.trawl), "passed": passed, **sizes,
              "limit_mib": limit_mib, "idle_mib": {name: round(value, 1) for name, value in idle.items()},
              "problems": problems[:PROBLEMS_SHOWN], "memory": judged, "at_end": at_end(rows, idle), "clients": haul.clients,
              "phases": [[name, round(begin, 1), round(end, 1)] for name, begin, end in sampler.phases],
              "scans": {name: of_scans(scans) for name, scans in haul.scans.items()} | {"again": of_scans(haul.again)},
              "payload_mib": round(load.checked_bytes / MIB, 1), "not_accepted_at_once": dict(load.refused),
              "reconnects": load.reconnects, "coordinators": last, "pages_mib": sampler.pages, "store": rows[-1]["store"],
              "by_5_s": by_time(rows)}
    line = "{phase:8} {coordinator}: mean {rss_mean_mib:7.1f} MiB, peak {rss_peak_mib:7.1f} ({under_limit}); holds {held_peak_mib:7.1f} " \
           "at most; beyond the bound by {beyond_worst_mib:+8.1f} at worst ({worst_rss_mib:.0f} of {worst_bound_mib:.0f}), in " \
           "{beyond_share:.0%} of the samples: {within_bound}"
    for row in judged:
        print(line.format(**row))
    for name, end in result["at_end"].items():
        print(f"{name} at the end: {end['rss_mib']:.1f} MiB, holds {end['held_mib']:.1f}; {end['idle_mib']:.1f} MiB before everything")
    print(f"{len(problems)} problems", *problems[:PROBLEMS_SHOWN], sep="\n  ", file=sys.stderr if problems else sys.stdout)
    full = arguments.scans >= 1000 and arguments.clients >= 200 and arguments.answers >= 8
    full = full and ANSWER_MIB[0] <= arguments.answer_mib <= ANSWER_MIB[1] and not arguments.env
    out = arguments.results or (ROOT / "benches/results" if full else TARGET / "soak")
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"haul-{result['date']}.json"
    path.write_text(dumped(result))
    bound = lambda row, name: allowed(row["coordinators"][name]["held_mib"])
    draw_haul(rows, sampler.phases, idle, limit_mib, bound, path.with_suffix(".png"))
    print("PASS" if passed else "FAIL", "" if full else "(smaller than a full run)", path)
    return passed


def by_time(rows):
    """Columns of the samples, every fifth second."""
    columns = {"t": [], "open": [], "streams": [], "at_once": []}
    rounded = lambda value: None if value is None else round(value, 1)
    for row in rows[::5]:
        columns["t"].append(round(row["t"]))
        columns["open"].append(row["client"]["open"])
        columns["streams"].append(int(row["client"]["streams"]))
        columns["at_once"].append((row["store"] or {}).get("at_once"))
        for name in rows[0]["processes"]:
            columns.setdefault(f"{name}_rss_mib", []).append(rounded((row["processes"].get(name) or {}).get("rss_mib")))
        for name in rows[0]["coordinators"]:
            for key in BYTES:
                columns.setdefault(f"{name}_{key}", []).append(rounded((row["coordinators"].get(name) or {}).get(key)))
    return columns


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trawl", type=pathlib.Path, default=TARGET / "release/trawl")
    parser.add_argument("--etcd", default=os.environ.get("TRAWL_ETCD", "etcd"))
    parser.add_argument("--store-python", type=pathlib.Path, default=TARGET / "venv-soak/store/bin/python", metavar="PYTHON",
                        help="Python that has moto's server; `tools/get-venv soak/store` makes it")
    parser.add_argument("--scans", type=int, default=1000, help="scans at once, in the phase `many`")
    parser.add_argument("--clients", type=int, default=200, help="clients that stop")
    parser.add_argument("--answers", type=int, default=8, help="large answers at once")
    parser.add_argument("--answer-mib", type=float, default=64.0, help="size of each of them")
    parser.add_argument("--delay-ms", type=float, default=300.0, help="delay of each request to the store")
    parser.add_argument("--mib-per-s", type=float, default=32.0, help="bandwidth of the store")
    parser.add_argument("--refuse-s", type=float, default=15.0, help="how long the store answers 503")
    parser.add_argument("--idle-s", type=float, default=45.0, help="how long the last phase is")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="variable of the coordinators, to find causes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path, help="folder in which logs, samples and data remain")
    parser.add_argument("--results", type=pathlib.Path,
                        help="folder for haul-DATE.json and .png [benches/results; target/soak for sizes below the defaults]")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    if not arguments.store_python.exists():
        parser.error(f"--store-python {arguments.store_python}: not there; `tools/get-venv soak/store` makes it")
    folder, trawl = empty_folder(parser, arguments.keep, "haul"), arguments.trawl.resolve()
    synthesize(trawl, folder / "data", arguments.seed)
    store, etcd, children = Store(arguments.store_python.absolute(), folder), start_etcd(arguments.etcd, folder), []
    cluster = BucketCluster("haul", folder, trawl, etcd, folder / "data", COORDINATORS, arguments.workers,
                            endpoint=store.endpoint, spool=folder / "spool", variables=dict(v.split("=", 1) for v in arguments.env))
    try:
        store.start()
        store.ask(delay_s=arguments.delay_ms / 1000, bytes_per_s=arguments.mib_per_s * MIB)
        wait_for("etcd answers", lambda: healthy(etcd), 30)
        cluster.start()
        wait_for("a leader with its workers", lambda: ready(cluster, arguments.workers), 60)
        print(f"{leader(cluster).name} leads; the store delays each request by {arguments.delay_ms:g} ms and passes "
              f"{arguments.mib_per_s:g} MiB a second", flush=True)
        addresses = [coordinator.address for coordinator in cluster.coordinators]
        load = Load(addresses, "market", OTHERS_PER_S, arguments.seed, folder / "generated", PROTOS)
        sampler = HaulSampler(cluster, store, load, folder / "samples.jsonl")
        sampler.start()
        haul = Haul(cluster, store, load, sampler, arguments)
        children = haul.children
        facts = asyncio.run(haul.run())
        sampler.stop()
    finally:
        for child in children:
            child.kill()
        cluster.stop()
        etcd.kill()
        store.stop()
    first = [row for row in sampler.rows if row["t"] < sampler.phases[0][2]]
    idle = {c.name: statistics.median(row["processes"][c.name]["rss_mib"] for row in first) for c in cluster.coordinators}
    passed = report(arguments, haul, facts, idle, chart_limit_mib())
    if not arguments.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
