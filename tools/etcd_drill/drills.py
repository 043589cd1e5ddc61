"""The procedures of docs/etcd.md, carried out while Trawl runs."""

import json
import re
import shutil
import subprocess
import threading
import time

from processes import Cluster, wait_for
from store import Store

PAGE = "docs/etcd.md"
DATASET, WHERE = "bars", "close > sma(close, 20)"
CSV = ("--quiet", "--format", "csv", "--output", "-")
UP_SECONDS = 60
# A scan that is under way while the snapshot is taken: five segments on two workers of one thread.
DELAY_MS, SLOW_SECONDS = 4000, 90
BEFORE, AFTER = 5, 3
NOSPACE_QUOTA_BYTES, NOSPACE_SCANS_MAX = 1_000_000, 1500
# How long etcd is away. A client would wait for a minute.
AWAY_SECONDS = 15
# Each process looks at etcd's version every ten seconds.
ENDED_SECONDS = 30
# How long a manager of processes waits before it starts one again: systemd in deploy/systemd.
RESTART_SECONDS = 2


class Manager(threading.Thread):
    """Starts processes that ended again, as systemd does."""

    def __init__(self, processes):
        super().__init__(daemon=True)
        self.processes, self.over, self.endings = processes, threading.Event(), []

    def run(self):
        while not self.over.wait(0.1):
            for process in self.processes:
                code = process.child.poll() if process.child else None
                if code is not None:
                    said = [line for line in process.log.read_text(errors="replace").splitlines() if line.strip()][-1]
                    self.endings.append((process.name, code, said))
                    if self.over.wait(RESTART_SECONDS):
                        return
                    process.start()


class Drill:
    def __init__(self, programs, folder, data, claims, members=1, **options):
        self.claims, self.folder = claims, folder
        self.store = Store(programs["etcd"], programs["etcdctl"], folder / "etcd", members, **options)
        self.cluster = Cluster("drill", folder, programs["trawl"], self.store, data, 2, 2)
        self.manager = Manager(self.cluster.processes())

    def __enter__(self):
        self.store.start()
        self.cluster.start()
        wait_for("the workers are registered", lambda: "w2" in self.cluster.command("workers"), UP_SECONDS)
        self.manager.start()
        return self

    def __exit__(self, *_):
        self.manager.over.set()
        self.manager.join()
        self.cluster.stop()
        self.store.stop()

    def claim(self, what, seen, holds):
        self.claims.add(PAGE, what, seen, holds)

    def ran(self, *words):
        """What a command printed as its answer, or why there is none, and whether it succeeded."""
        command = [self.cluster.trawl, *words, "--coordinator", self.cluster.addresses]
        ended = subprocess.run(list(map(str, command)), env=self.cluster.environment, capture_output=True, text=True)
        return ended.stdout if ended.returncode == 0 else ended.stdout + ended.stderr, ended.returncode == 0

    def scan(self, *more):
        return self.ran("scan", "--dataset", DATASET, "--where", WHERE, *(more or (*CSV, "--fresh")))

    def answer(self, scan):
        return self.ran("scans", "results", scan, *CSV)[0]

    def submit(self, *more):
        """The id of a scan that is recorded."""
        said, accepted = self.scan("--fresh", "--detach", *more)
        if not accepted:
            raise OSError(f"a scan was refused: {said}")
        return said.split()[-1] if len(said.split()) == 1 else re.search(r"\b[0-9a-f-]{8,}\b", said)[0]

    def states(self):
        listed = self.ran("scans", "list", "--json", "--limit", "200")[0].splitlines()
        rows = [json.loads(line) for line in listed if line.startswith("{")]
        return {row["scan"]: row["state"] for row in rows}

    def ended(self, scans):
        return all(self.states().get(scan) == "done" for scan in scans)


def compaction(programs, folder, data, claims):
    """Compaction and defragmentation while scans run."""
    with Drill(programs, folder, data, claims) as drill:
        expected, _ = drill.scan()
        scans = [drill.submit() for _ in range(40)]
        wait_for("they end", lambda: drill.ended(scans[-10:]), UP_SECONDS)
        answers = []
        over = threading.Event()

        def load():
            while not over.is_set():
                answers.append(drill.scan()[0] == expected)

        thread = threading.Thread(target=load)
        thread.start()
        try:
            revision, before = drill.store.status()
            said = drill.store.said("compact", revision)
            began = time.monotonic()
            defragmented = drill.store.said("defrag")
            took, (_, after) = time.monotonic() - began, drill.store.status()
            time.sleep(3)
        finally:
            over.set()
            thread.join()
        drill.claim(
            "compact and defragment while scans run",
            f"`{said}`, `{defragmented.split('[')[0].strip()}` in {took * 1e3:.0f} ms; {before / 1e6:.2f} MB before, {after / 1e6:.2f} MB after; "
            f"{sum(answers)} of {len(answers)} answers beside it have the same bytes",
            after < before and answers and all(answers),
        )


def nospace(programs, folder, data, claims):
    """The quota is used up by scans alone, and freed as the page says."""
    with Drill(programs, folder, data, claims, quota_bytes=NOSPACE_QUOTA_BYTES) as drill:
        accepted, refused = 0, ""
        while accepted < NOSPACE_SCANS_MAX and not refused:
            children = [
                drill.cluster.command("scan", "--dataset", DATASET, "--where", WHERE, "--fresh", "--detach", wait=False) for _ in range(8)
            ]
            for child in children:
                said = child.communicate()[0]
                if child.returncode == 0:
                    accepted += 1
                else:
                    refused = said.strip()
        began = time.monotonic()
        again, taken = drill.scan("--fresh", "--detach")
        took = time.monotonic() - began
        drill.claim(
            f"a quota of {NOSPACE_QUOTA_BYTES} bytes: the scan that does not fit is refused, with the reason",
            f"scan {accepted + 1}: {refused[:160]}",
            "no space left" in refused,
        )
        drill.claim("the next one is refused at once", f"after {took:.1f} s", not taken and took < 3)
        alarm = drill.store.said("alarm", "list")
        drill.claim("`etcdctl alarm list`", alarm, "NOSPACE" in alarm)
        revision, before = drill.store.status()
        drill.store.said("compact", revision)
        drill.store.said("defrag")
        _, after = drill.store.status()
        still, _ = drill.scan("--fresh", "--detach")
        drill.claim("the alarm remains after compaction", f"{before / 1e6:.2f} MB, then {after / 1e6:.2f} MB; {still.strip()[:60]}", "no space" in still)
        drill.store.said("alarm", "disarm")
        began = time.monotonic()
        wait_for("scans are accepted again", lambda: drill.scan()[1], UP_SECONDS)
        drill.claim("after `etcdctl alarm disarm` scans are accepted again", f"after {time.monotonic() - began:.1f} s", True)
        waiting = lambda: [scan for scan, state in drill.states().items() if state in ("queued", "running")]
        wait_for("every recorded scan ends", lambda: not waiting(), UP_SECONDS)
        drill.claim("scans whose end could not be recorded have ended", f"{len(waiting())} wait or run", not waiting())


def restore(programs, folder, data, claims, members=1):
    """Every member, or a quorum of them, loses its disk; a snapshot takes the place."""
    with Drill(programs, folder, data, claims, members) as drill:
        store, cluster = drill.store, drill.cluster
        expected, _ = drill.scan()
        old = [drill.submit() for _ in range(BEFORE)]
        wait_for("the scans before the snapshot end", lambda: drill.ended(old), UP_SECONDS)
        cluster.restart_workers("--fault-delay-ms-per-segment", DELAY_MS)
        for worker in cluster.workers:
            wait_for("the workers are ready", lambda: worker.printed("ready worker"), UP_SECONDS)
        running = drill.submit("--shards", "per-group")
        wait_for("it runs", lambda: drill.states().get(running) == "running", UP_SECONDS)
        snapshot = folder / "trawl-etcd.db"
        began = time.monotonic()
        store.said("snapshot", "save", snapshot, member=store.members[0])
        saved, status = time.monotonic() - began, store.said("snapshot", "status", snapshot)
        drill.claim(f"a snapshot of {members} member(s), while a scan runs", f"{saved * 1e3:.0f} ms; `{status}`", snapshot.exists())
        late = [drill.submit() for _ in range(AFTER)]
        # A quorum of the disks, which is all of them where there is one.
        lost = store.members[: members // 2 + 1]
        for member in lost:
            member.kill()
            shutil.rmtree(member.data)
        child = cluster.command("scan", "--dataset", DATASET, "--where", WHERE, "--fresh", "--detach", wait=False)
        time.sleep(AWAY_SECONDS)
        accepted = child.poll() == 0
        child.kill()
        away = child.communicate()[0].strip().splitlines() or ["nothing"]
        drill.claim(f"{len(lost)} of {members} lose their disks: no scan is accepted", f"after {AWAY_SECONDS} s: {away[-1][:140]}", not accepted)
        began = time.monotonic()
        store.restore(snapshot)
        restored = time.monotonic() - began
        health = store.said("endpoint", "health", "--cluster")
        everybody = {process.name for process in cluster.processes()}
        try:
            wait_for("all have ended", lambda: everybody <= {name for name, _, _ in drill.manager.endings}, ENDED_SECONDS)
        except TimeoutError:
            # The claim below counts them.
            pass
        noticed = time.monotonic() - began - restored
        wait_for("a coordinator leads and both workers serve", lambda: cluster.command("workers").count("serving") == 2, UP_SECONDS)
        led = time.monotonic() - began - restored
        drill.claim(
            "restored on every member, with a new token",
            f"healthy after {restored:.1f} s ({health.count('is healthy')} of {members}); {led:.1f} s later a coordinator leads and both workers serve",
            health.count("is healthy") == members,
        )
        endings = {name: (code, said) for name, code, said in drill.manager.endings}
        told = sum("older snapshot" in said or "lost what it had acknowledged" in said for _, said in endings.values())
        drill.claim(
            "every coordinator and worker ends by itself with exit code 1 and the reason, and is started again",
            f"{len(endings)} of {len(everybody)} ended with {sorted({code for code, _ in endings.values()})} within {noticed:.1f} s, {told} say why",
            len(endings) == len(cluster.processes()) == told and {code for code, _ in endings.values()} == {1},
        )
        wait_for("both coordinators answer", lambda: drill.ran("coordinators")[0].count("127.0.0.1") == 2, UP_SECONDS)
        states = drill.states()
        kept = [drill.answer(scan) for scan in old]
        drill.claim(
            "scans that had ended before the snapshot are listed, and their answers are read from the result store",
            f"{sum(states.get(scan) == 'done' for scan in old)} of {BEFORE} `done`, {sum(answer == expected for answer in kept)} with the same bytes",
            all(states.get(scan) == "done" for scan in old) and all(answer == expected for answer in kept),
        )
        began = time.monotonic()
        wait_for("the scan that ran goes on", lambda: drill.ended([running]), SLOW_SECONDS)
        answer = drill.answer(running)
        drill.claim(
            "the scan that ran while the snapshot was taken goes on",
            f"`done` {time.monotonic() - began:.0f} s later, {'the same bytes' if answer == expected else 'other bytes: ' + answer[:80]}",
            answer == expected,
        )
        unknown = [drill.ran("scans", "status", scan)[0] for scan in late]
        drill.claim(
            "scans that were accepted after the snapshot are unknown",
            f"{sum('is known here' in said for said in unknown)} of {AFTER}: {unknown[0].strip()[:80]}",
            all("is known here" in said for said in unknown),
        )
        answer, _ = drill.scan()
        drill.claim("a new scan has the same bytes", f"{len(answer)} bytes", answer == expected)
