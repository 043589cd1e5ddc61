#!/usr/bin/env python3
"""A real Prometheus watches real clusters of the executable on loopback: every query of every dashboard is asked, and alerts are
made to fire by their faults and have to go away after. `just observability`.

    tools/observability --trawl TRAWL [--only WORD...] [--keep DIR] [--write]
    tools/observability --check

Three clusters: `faulty` (two coordinators, three workers, an etcd of its own), to which everything is done; `calm`, its neighbour in
the same Prometheus, in which no alert may fire; and `guarded`, a coordinator with certificates. Durations of the rules are
shortened (a run prints how); their expressions are those of deploy/prometheus otherwise. With --write the tables of a whole run are
put into docs/telemetry.md; --check runs nothing, and compares that page with the alerts and dashboards that there are. Exit code 77: a program
that is needed cannot be had here.

Some faults need a device of the test driver: that of TRAWL_CUDA_LIBRARIES, or the one that tools/get-test-driver finds built, or builds with
Cargo, which waits for whatever else uses the target folder.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import page
from datasets import LONG, LONG_BARS, LONG_SYMBOLS, WATCHED, WATCHED_HOURS, WIDE, WIDE_BARS, WIDE_SYMBOLS, import_daily
from faults import MEMORY_BYTES, NOT_TRIED, SPOOL_BYTES, all_faults
from processes import Cluster, Etcd, wait_for
from prometheus import WAITS, WINDOWS, WITHOUT_DATA, Prometheus, dashboards

ROOT = pathlib.Path(__file__).resolve().parents[2]
# How long an alert may take to fire or to go away; the longest window is a minute.
FIRES_SECONDS, ENDS_SECONDS = 100, 150
ETCD_QUOTA_BYTES = 24 * 1024 * 1024


class Guarded(Cluster):
    """A coordinator with certificates."""

    scheme = "https"

    def make_certificates(self, days):
        command = [self.trawl, "certs", "dev", "--dir", self.folder / "certs", "--days", str(days)]
        subprocess.run(list(map(str, command)), check=True, capture_output=True)

    def __init__(self, name, folder, trawl, etcd, data):
        certs = folder / "certs"
        options = ["--tls-ca", certs / "ca.pem", "--tls-cert", certs / "coordinator.pem", "--tls-key", certs / "coordinator.key"]
        super().__init__(name, folder, trawl, etcd, data, 1, 0, options=options)
        self.make_certificates(30)


class Load(threading.Thread):
    """Scans of users, one after the other, in clusters that are not meant to be idle."""

    def __init__(self, clusters):
        super().__init__(daemon=True)
        self.clusters, self.running, self.over = clusters, threading.Event(), False
        self.go_on()

    def pause(self):
        self.running.clear()

    def go_on(self):
        self.running.set()

    def run(self):
        while not self.over:
            for number, cluster in enumerate(self.clusters):
                # The neighbour never pauses.
                if number > 0 or self.running.is_set():
                    child = cluster.scan(wait=False)
                    try:
                        child.communicate(timeout=10)
                    except subprocess.TimeoutExpired:
                        child.kill()
                        child.communicate()
            time.sleep(0.5)


def tool(name, given):
    if given:
        return given
    found = subprocess.run([ROOT / "tools" / f"get-{name}"], capture_output=True, text=True)
    if found.returncode != 0:
        print(f"SKIPPED: {found.stderr.strip()}", file=sys.stderr)
        sys.exit(77)
    return found.stdout.strip()


def version(program):
    """The name and number that a program of Prometheus prints first."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True)
    return " ".join(re.match(r"(\w+), version (\S+)", said.stdout + said.stderr).groups())


class Run:
    def __init__(self, clusters, prometheus):
        self.clusters, self.prometheus = clusters, prometheus
        self.rows, self.open, self.seen, self.problems = [], [], set(), []
        self.neighbour = True

    def look(self):
        """What fires now; notes which of the open alerts have ended."""
        firing = self.prometheus.firing()
        self.seen |= firing
        if self.neighbour:
            for alert, cluster in firing:
                if cluster == "calm":
                    self.problems.append(f"{alert} fires in the cluster that nothing was done to")
        for row in self.open[:]:
            if (row["alert"], row["cluster"]) not in firing:
                row["ended"] = time.monotonic() - row["healed"]
                self.open.remove(row)
        return firing

    def healthy(self):
        one = lambda expression: self.prometheus.value(expression)
        leads = one('sum(trawl_leader{cluster="faulty"})') == 1
        # Prometheus knows of those that were just restarted what it scraped before. One that has not registered yet has no lease to lose.
        ready = all(process.printed("ready ") for process in self.clusters[0].processes())
        self.look()
        return ready and leads and one('sum(trawl_workers{cluster="faulty",state="serving"})') == 3

    def make(self, fault):
        wait_for("the cluster is whole again", self.healthy, 60)
        print(f"- {fault.what}", flush=True)
        # What an earlier fault still makes fire would not be this one's doing.
        quiet = lambda: not {(alert, fault.cluster) for alert in fault.alerts} & self.look()
        wait_for("an alert of an earlier fault ends", quiet, ENDS_SECONDS)
        rows = [
            {"alert": alert, "cluster": fault.cluster, "fault": fault.what, "fired": None, "ended": None}
            for alert in fault.alerts
        ]
        self.rows += rows
        try:
            fault.inject()
            if fault.silent:
                end = time.monotonic() + fault.silent[0]
                while time.monotonic() < end:
                    for alert in {a for a, c in self.look() if c == fault.cluster} & set(fault.silent[1]):
                        self.problems.append(f"{alert} fires although nothing waits")
                    time.sleep(0.5)
            begin = time.monotonic()
            while time.monotonic() < begin + FIRES_SECONDS and any(row["fired"] is None for row in rows):
                if fault.again:
                    fault.again()
                firing = self.look()
                for row in rows:
                    if row["fired"] is None and (row["alert"], row["cluster"]) in firing:
                        row["fired"] = time.monotonic() - begin
                time.sleep(0.25)
        finally:
            fault.heal()
        for row in rows:
            row["healed"] = time.monotonic()
            if row["fired"] is not None:
                self.open.append(row)
            else:
                self.problems.append(f"{row['alert']} did not fire: {fault.what}")

    def nothing_is_scraped(self):
        """The end: every process of every cluster stops, and one starts again."""
        row = {"alert": "TrawlNotScraped", "cluster": "", "fault": "every process stops", "fired": None, "ended": None}
        self.rows.append(row)
        for cluster in self.clusters:
            cluster.stop()
        begin = time.monotonic()
        wait_for("TrawlNotScraped fires", lambda: ("TrawlNotScraped", "") in self.prometheus.firing(), FIRES_SECONDS)
        row["fired"], row["healed"] = time.monotonic() - begin, time.monotonic()
        self.clusters[1].start()
        wait_for("TrawlNotScraped ends", lambda: ("TrawlNotScraped", "") not in self.prometheus.firing(), ENDS_SECONDS)
        row["ended"] = time.monotonic() - row["healed"]

    def wait_for_ends(self):
        wait_for("every alert ends", lambda: self.look() is not None and not self.open, ENDS_SECONDS)


def table(rows, *columns):
    widths = [max(len(str(row[i])) for row in [columns, *rows]) for i in range(len(columns))]
    for row in [columns, ["-" * width for width in widths], *rows]:
        print("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip())


def report_queries(run, asked, whole):
    """Counts by dashboard, and every query that has no data, with the reason."""
    print("\nQueries of the dashboards, over the whole run:\n")
    boards = sorted({row[0] for row in asked})
    has_data = lambda row: isinstance(row[3], int) and row[3] > 0
    counts = [(b, sum(r[0] == b for r in asked), sum(r[0] == b and has_data(r) for r in asked)) for b in boards]
    table(counts, *page.QUERIES)
    for board, panel, query, found in asked:
        if isinstance(found, str):
            run.problems.append(f"{board}, {panel}: {found}: {query}")
        elif found == 0:
            why = None if whole else next((why for part, why in WITHOUT_DATA.items() if part in query), None)
            print(f"without data: {board}, {panel}: {why or 'NOT EXPECTED'}")
            if why is None:
                run.problems.append(f"{board}, {panel}: no data: {query}")
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trawl", default=ROOT / "target/ci/trawl", type=pathlib.Path)
    parser.add_argument("--prometheus")
    parser.add_argument("--etcd")
    parser.add_argument("--only", nargs="*", default=[], help="faults whose alerts or text contain one of these words")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for logs, which is kept")
    parser.add_argument("--write", action="store_true", help="write the tables of a whole run into docs/telemetry.md")
    parser.add_argument("--check", action="store_true", help="only whether docs/telemetry.md shows the alerts and dashboards that there are")
    given = parser.parse_args()
    if given.check:
        wrong = page.stale(ROOT)
        for line in wrong:
            print(f"PROBLEM: {line}: just observability --write", file=sys.stderr)
        print(f"observability: {len(page.alerts(ROOT))} alerts, {len(wrong)} problems of the pages about them")
        sys.exit(1 if wrong else 0)
    if not given.trawl.is_file():
        sys.exit(f"there is no {given.trawl}: cargo build --profile ci -p trawl")
    etcd_program, program = tool("etcd", given.etcd), tool("prometheus", given.prometheus)
    folder = given.keep or pathlib.Path(tempfile.mkdtemp(prefix="trawl-observability-"))
    folder.mkdir(parents=True, exist_ok=True)
    data, own_data, began = folder / "data", folder / "own-data", time.time()
    for name, seed, symbols, bars in (("bars", 1, 300, 200), ("other", 2, 300, 200), (WIDE, 3, WIDE_SYMBOLS, WIDE_BARS), (LONG, 4, LONG_SYMBOLS, LONG_BARS)):
        make = [given.trawl, "data", "synth", "--symbols", symbols, "--bars", bars, "--seed", seed]
        make += ["--dataset", name, "--data-root", data]
        subprocess.run(list(map(str, make)), check=True, capture_output=True)
    import_daily(given.trawl, data, 1)
    shutil.copytree(data, own_data)
    (folder / "faulty").mkdir()
    (folder / "calm").mkdir()
    stores = [Etcd(etcd_program, folder / "faulty", ETCD_QUOTA_BYTES), Etcd(etcd_program, folder / "calm", 2 * 1024**3)]
    few = ["--scans-running-max", 4, "--scans-waiting-max", 8, "--watched-datasets", f"{WATCHED}={WATCHED_HOURS}"]
    few += ["--results-memory-bytes", MEMORY_BYTES, "--spool-bytes", SPOOL_BYTES]
    few += ["--scrub-every-s", 2, "--scrub-first-after-s", 1, "--scrub-bytes-per-s", 1 << 30]
    faulty = Cluster("faulty", folder / "faulty", given.trawl, stores[0], data, 2, 3, own_data=own_data, options=few)
    # Bars of its own: what is done to the others' must not reach it.
    calm_data = folder / "calm-data"
    shutil.copytree(data, calm_data)
    calm = Cluster("calm", folder / "calm", given.trawl, stores[1], calm_data, 1, 1)
    guarded = Guarded("guarded", folder / "guarded", given.trawl, stores[1], data)
    clusters = [faulty, calm, guarded]
    prometheus = Prometheus(program, folder / "prometheus", ROOT, clusters)
    load = Load([faulty, calm])
    run = Run(clusters, prometheus)
    try:
        for process in [*stores, *clusters, prometheus]:
            process.start()
        wait_for("Prometheus answers", prometheus.ready, 60)
        load.start()
        wait_for("the clusters are up", run.healthy, 60)
        short = lambda durations: ", ".join(f"{a} to {b}" for a, b in durations.items())
        print(f"Shortened here: windows {short(WINDOWS)}; for: {short(WAITS)}", flush=True)
        # Before anything is done, nothing fires.
        time.sleep(15)
        if run.look():
            run.problems.append(f"fires before any fault: {sorted(run.look())}")
        for fault in all_faults(faulty, guarded, prometheus, load, data, own_data):
            words = " ".join([fault.what, *fault.alerts]).lower()
            if not given.only or any(word.lower() in words for word in given.only):
                run.make(fault)
        run.wait_for_ends()
        load.go_on()
        asked = dashboards(prometheus, ROOT, began, time.time())
        run.neighbour, load.over = False, True
        if not given.only:
            run.nothing_is_scraped()
    except (TimeoutError, OSError) as error:
        run.problems.append(str(error))
        asked = []
    finally:
        load.over = True
        for process in [*clusters, prometheus, *stores]:
            process.stop()
        if not given.keep and not run.problems:
            shutil.rmtree(folder, ignore_errors=True)
    print()
    shown = lambda seconds: "NO" if seconds is None else f"{seconds:.0f} s"
    rows = [(r["alert"], r["cluster"], r["fault"], shown(r["fired"]), shown(r["ended"])) for r in run.rows]
    table(rows, *page.FIRED)
    print("\nA later fault may keep an alert up: 'ended after' counts from the end of its own fault to the first moment without it.")
    counts = report_queries(run, asked, not given.only) if asked else []
    if not given.only:
        print("\nNot made to fire here (promtool alone does):\n")
        table(sorted(NOT_TRIED.items()), "alert", "why")
        for alert in sorted(page.alerts(ROOT) ^ ({r["alert"] for r in run.rows} | set(NOT_TRIED))):
            run.problems.append(f"{alert}: neither tried nor listed, or not an alert")
    for problem in dict.fromkeys(run.problems):
        print(f"PROBLEM: {problem}", file=sys.stderr)
    fired = len({r["alert"] for r in run.rows if r["fired"] is not None})
    logs = f"; logs in {folder}" if run.problems or given.keep else ""
    problems, seconds = len(dict.fromkeys(run.problems)), time.time() - began
    print(f"\nobservability: {fired} alerts made to fire, {problems} problems, {seconds:.0f} s{logs}")
    if given.write and not given.only and not run.problems:
        page.write(ROOT, seconds, rows, counts, version(program))
    sys.exit(1 if run.problems else 0)


if __name__ == "__main__":
    main()
