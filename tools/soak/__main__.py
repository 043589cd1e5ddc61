#!/usr/bin/env python3
"""Scans at a steady rate on a real cluster for a long time: nothing may grow, and nothing may be lost when the leader is killed.

    tools/soak --trawl TRAWL [--minutes 60] [--rate 10] [--workers 3] [--seed 1] [--keep DIR]

etcd, two coordinators and the workers are real processes on loopback. One process submits plain scans, cross-sections, scans
that nobody waits for, ephemeral ones, ones whose document is in the result store and ones that are cancelled, whether or not
earlier ones have ended, and follows each to its end. Every five seconds memory, threads, open files, etcd and folders are
measured. At the end the leader is killed in the middle of scans that take long; the load goes on for half a minute, and every
scan has to end. Exit code 1 if a scan was lost, two equal scans differ, or something grew (verdict.py has the limits).
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
import sys
import time

from client import KINDS, PROTOS, Load
from common import COORDINATORS, ETCD_FLAGS, ROOT, TARGET, dumped, empty_folder, etcd_flags, healthy, leader, measured, ready
from common import start_etcd, synthesize
from plots import draw
from processes import Cluster, wait_for
from samples import Sampler, strays
from verdict import growth, lost, summary

BURST = 40  # scans that take long, at the kill
BEGUN = 8  # of them have results when the leader is killed
BURST_S = 20.0  # how long to wait for that
AFTER_S = 30.0  # how long the load goes on after the kill
TAKEOVER_S = 30.0
PROBLEMS_SHOWN = 20
IDLE_S = 60.0  # without load, at the end
DRAIN_S = 300.0


async def kill_leader(cluster, load):
    """SIGKILL while scans run that have some of their segments; what was open, and how long until another led."""
    burst = load.burst(BURST)
    until = time.monotonic() + BURST_S
    while time.monotonic() < until and sum(bool(scan.segments) and not scan.outcome for scan in burst) < BEGUN:
        await asyncio.sleep(0.02)
    old = await asyncio.to_thread(leader, cluster)
    opened = [scan for scan in load.scans if scan.id and not scan.outcome]
    begun = [scan for scan in opened if scan.segments]
    at = time.monotonic()
    await asyncio.to_thread(old.kill)
    await asyncio.to_thread(wait_for, "another coordinator leads", lambda: leader(cluster), TAKEOVER_S)
    facts = {"killed": old.name, "at_s": None, "open": len(opened), "with_segments": len(begun),
             "open_ephemeral": sum(not scan.recorded for scan in opened), "takeover_s": round(time.monotonic() - at, 2)}
    return at, facts


async def soak(cluster, etcd, load, arguments):
    sampler = Sampler(cluster, etcd, load, cluster.folder / "samples.jsonl")
    sampler.start()
    submits = asyncio.create_task(load.run())
    end = time.monotonic() + 60 * arguments.minutes
    while time.monotonic() < end:
        await asyncio.sleep(min(60.0, max(0.0, end - time.monotonic())))
        row = sampler.rows[-1]
        memory = " ".join(f"{name} {p['rss_mib']:.0f}" for name, p in row["processes"].items() if p)
        print(f"{sampler.now() / 60:5.1f} min: {len(load.scans)} scans, {len(load.open)} open; MiB: {memory}; etcd "
              f"{(row['etcd'] or {}).get('db_mib', 0):.0f} MiB; {len(load.problems)} problems; load {row['load1']:.1f}", flush=True)
    killed, facts = await kill_leader(cluster, load)
    facts["at_s"] = round(killed - sampler.begin, 1)
    print(f"killed {facts['killed']} with {facts['open']} scans open; another leads after {facts['takeover_s']} s", flush=True)
    await asyncio.sleep(AFTER_S)
    load.over = True
    await submits
    facts["without_end"] = await load.drained(DRAIN_S)
    active = await load.active()
    await asyncio.sleep(IDLE_S)
    await load.close()
    await asyncio.to_thread(sampler.stop)
    return sampler, killed, facts | {"active_at_end": active, "strays": strays(etcd, cluster)}


def retention_s():
    """Seconds of history that etcd keeps: the period of its saw-tooth."""
    number, unit = re.fullmatch(r"(\d+)([mh])", etcd_flags()["auto-compaction-retention"]).groups()
    return int(number) * {"m": 60.0, "h": 3600.0}[unit]


def start(arguments, folder, trawl):
    data = folder / "data"
    synthesize(trawl, data, arguments.seed)
    etcd = start_etcd(arguments.etcd, folder)
    return etcd, Cluster("soak", folder, trawl, etcd, data, COORDINATORS, arguments.workers)


def report(arguments, sampler, load, killed, facts):
    """Judges, prints, and writes the JSON and its plots. Whether everything was as it has to be."""
    problems = lost(load, killed, facts)
    grown, judged = growth(sampler.rows, facts["at_s"], retention_s())
    passed = not problems and all(row["verdict"] != "FAIL" for row in grown)
    result = {"benchmark": "soak", "date": datetime.date.today().isoformat(), **measured(arguments.trawl), "passed": passed,
              "minutes": arguments.minutes, "rate": arguments.rate, "workers": arguments.workers, "seed": arguments.seed,
              "etcd": {name: etcd_flags()[name] for name in ETCD_FLAGS}, "problems": problems[:PROBLEMS_SHOWN],
              "growth_judged": judged, "growth": grown, "kill": facts, **summary(load, sampler, killed)}
    for row in grown:
        print("{what:34} {mean:10.1f} {unit:3} on average, {per_hour:+9.2f} an hour, limit {limit:g}: {verdict}".format(**row))
    print(f"{len(problems)} problems", *problems[:PROBLEMS_SHOWN], sep="\n  ", file=sys.stderr if problems else sys.stdout)
    out = arguments.results or (ROOT / "benches/results" if judged else TARGET / "soak")
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"soak-{result['date']}.json"
    path.write_text(dumped(result))
    draw(sampler.rows, facts["at_s"], path.with_suffix(".png"))
    print(json.dumps({key: result[key] for key in ("scans", "latency_s", "late_s", "kill")}))
    print("PASS" if passed else "FAIL", "" if judged else "(too short to judge growth)", path)
    return passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trawl", type=pathlib.Path, default=TARGET / "release/trawl")
    parser.add_argument("--etcd", default=os.environ.get("TRAWL_ETCD", "etcd"))
    parser.add_argument("--minutes", type=float, default=60.0, help="until the leader is killed")
    parser.add_argument("--rate", type=float, default=10.0, help="scans a second")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path, help="folder in which logs, samples and data remain")
    parser.add_argument("--results", type=pathlib.Path,
                        help="folder for soak-DATE.json and .png [benches/results; target/soak for short ones]")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    folder = empty_folder(parser, arguments.keep, "soak")
    etcd, cluster = start(arguments, folder, arguments.trawl.resolve())
    try:
        wait_for("etcd answers", lambda: healthy(etcd), 30)
        cluster.start()
        wait_for("a leader with its workers", lambda: ready(cluster, arguments.workers), 60)
        addresses = [coordinator.address for coordinator in cluster.coordinators]
        load = Load(addresses, "market", arguments.rate, arguments.seed, folder / "generated", PROTOS)
        print(f"{arguments.rate:g} scans a second for {arguments.minutes:g} min: "
              + ", ".join(f"{share} % {kind}" for kind, share in KINDS.items()), flush=True)
        sampler, killed, facts = asyncio.run(soak(cluster, etcd, load, arguments))
    finally:
        cluster.stop()
        etcd.kill()
    passed = report(arguments, sampler, load, killed, facts)
    if not arguments.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
