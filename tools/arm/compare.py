"""The same work by the executable of this machine and by the one for aarch64 under qemu: are the bytes equal?"""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

from debian import ROOT

sys.path.insert(0, str(ROOT / "tools/observability"))
from processes import Cluster, Etcd, wait_for

# Expressions of one command.
TOGETHER = 60
PRECISIONS = ("f64", "f32")
# Days have no time of day: datasets, symbols, and whether functions of the clock are computed over them.
OF_CLOCK = "Time and sessions"
DAYS_AND_MINUTES = (("us5", "IBM", False), ("demo-1m", "SPY", True))
FORMATS = ("csv", "json", "parquet", "arrow")
SYMBOLS, BARS = 300, 400
UP_SECONDS = 120
ETCD_QUOTA_BYTES = 2 * 1024**3
CLAUSES = [
    "--dataset", "market", "--universe", "close > 2 and sma(volume, 20) > 1000",
    "--where", "within(crosses_above(ema(close, 12), sma(close, 26)), 5) or rsi() < 35 or adx(14) > 30",
    "--rank", "round(rsi(close, 14) / 10) desc, close asc", "--limit", "50",
    "--select", "close", "--select", "macd().hist as hist", "--select", "roc(close, 20)", "--quiet",
]  # fmt: skip
README_SCAN = ["scan", "--dataset", "us5", "--as-of", "2013-02-22"]
README_SCAN += ["--where", "within(crosses_above(sma(close,50), sma(close,200)), 3)"]


class Both:
    """The two executables."""

    def __init__(self, here, there, folder, claims):
        self.here, self.there, self.folder, self.claims = here, there, folder, claims

    def run(self, program, *arguments):
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environment |= {"TRAWL_DATA_ROOT": str(self.folder / "data"), "TRAWL_FRESH": "1"}
        ended = subprocess.run([program, *map(str, arguments)], env=environment, cwd=self.folder, capture_output=True)
        failed = f"exit code {ended.returncode}: ".encode() if ended.returncode != 0 else b""
        return failed + ended.stdout + ended.stderr

    def outputs(self, *arguments):
        return [self.run(program, *arguments) for program in (self.here, self.there)]

    def equal(self, where, claim, outputs, what=""):
        same = len(set(outputs)) == 1 and not outputs[0].startswith(b"exit code")
        told = f"{what}{len(outputs[0]):,} bytes, sha256 {hashlib.sha256(outputs[0]).hexdigest()[:12]}"
        other = next((output for output in outputs if output != outputs[0]), outputs[0])
        self.claims.add(where, claim, told if same else f"other bytes: {other[-300:]!r}", same)


def functions(both):
    """Every function that reads one symbol, in both precisions: over real bars of days, those of the clock over minutes."""
    listed = [f for f in json.loads(both.run(both.here, "indicators", "--json")) if f.get("example")]
    for dataset, symbol, of_clock in DAYS_AND_MINUTES:
        bars = both.folder / f"{dataset}.csv"
        exported = both.run(both.here, "data", "export", dataset, "--symbol", symbol, "-o", "-")
        bars.write_bytes(exported)
        chosen = [f for f in listed if (f["group"] == OF_CLOCK) == of_clock]
        names = lambda f: [f".{o['name']}" for o in f["outputs"]] if len(f["outputs"]) > 1 else [""]
        expressions = [f["example"] + name for f in chosen for name in names(f)]
        for precision in PRECISIONS:
            outputs = [b"", b""]
            for at in range(0, len(expressions), TOGETHER):
                part = enumerate(expressions[at : at + TOGETHER])
                words = [word for number, text in part for word in ("--expr", f"{text} as c{number}")]
                more = both.outputs("compute", "--input", bars, "--precision", precision, *words)
                outputs = [before + after for before, after in zip(outputs, more, strict=True)]
            told = f"{len(chosen)} functions in {len(expressions)} columns over {len(exported.splitlines()) - 1:,} bars, "
            what = "every function of the clock" if of_clock else "every other function that reads one symbol"
            both.equal("README.md", f"`compute` in {precision}: {what}", outputs, told)


def readme(both):
    """The first command of the README, which prints what is there."""
    outputs = both.outputs(*README_SCAN)
    both.equal("README.md", "the first command", outputs)
    shown = re.search(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    # After it comes what goes to stderr.
    printed = outputs[1].decode().strip().startswith(shown.strip())
    both.claims.add("README.md", "prints what is written there", f"{len(shown.splitlines())} lines", printed)


def market(both, name, program):
    """The folder of a synthetic market, which a program makes where it is missing."""
    root = both.folder / name
    if not root.exists():
        both.run(program, "data", "synth", "--symbols", SYMBOLS, "--bars", BARS, "--dataset", "market", "--data-root", root)
    return root


def scans(both):
    """A synthetic market, made and scanned by both; every format of an answer."""
    made = []
    for name, program in (("here", both.here), ("there", both.there)):
        root = market(both, name, program)
        made.append(both.run(program, "data", "inspect", "market", "--json", "--data-root", root))
    snapshots = [json.loads(text)["snapshot"].encode() for text in made]
    claim = f"a market of {SYMBOLS} symbols and {BARS} bars, made by each: the id of the snapshot"
    both.equal("docs/datasets.md", claim, snapshots, f"{snapshots[0].decode()[:12]}, ")
    for kind in FORMATS:
        answers = []
        for program in (both.here, both.there):
            path = both.folder / f"answer.{kind}"
            path.unlink(missing_ok=True)
            said = both.run(program, "scan", *CLAUSES, "--output", path, "--data-root", both.folder / "here")
            answers.append(path.read_bytes() if path.exists() else said)
        both.equal("ARCHITECTURE.md", f"a scan's answer as {kind}, identity and digest included", answers)


def cluster(both, etcd):
    """A cluster of one, and one of two workers with different processors."""
    root = market(both, "here", both.here)
    expected = both.run(both.here, "scan", *CLAUSES, "--format", "csv", "--output", "-", "--data-root", root)
    for name, coordinator, workers in (
        ("one", both.there, [both.there]),
        ("mixed", both.here, [both.here, both.there]),
    ):
        folder = both.folder / name
        folder.mkdir()
        store = Etcd(etcd, folder, ETCD_QUOTA_BYTES)
        running = Cluster(name, folder, both.here, store, root, 1, len(workers))
        running.coordinators[0].command[0] = str(coordinator)
        for worker, program in zip(running.workers, workers, strict=True):
            worker.command[0] = str(program)
        try:
            store.start()
            running.start()
            names = [worker.name for worker in running.workers]
            registered = lambda: all(name in running.command("workers") for name in names)
            wait_for(f"the workers are registered, see {folder}", registered, UP_SECONDS)
            report = folder / "report.json"
            output = ["--format", "csv", "--output", "-", "--shards", "per-group", "--report", report]
            said = running.command("scan", *CLAUSES, *output)
            runs = json.loads(report.read_text())["shard_runs"] if report.exists() else []
        finally:
            running.stop()
            store.stop()
        who = sorted({run["worker"] for run in runs})
        claim = {
            "one": "a coordinator and a worker for aarch64: the answer is that of one process of x86-64",
            "mixed": "a coordinator and a worker of x86-64 with one of aarch64: both answer, and the answer is the same",
        }[name]
        same = said.encode() == expected and len(who) == len(workers)
        both.claims.add("docs/cluster.md", claim, f"{len(runs)} shards by {', '.join(who)}" if same else said[-300:], same)


def processor():
    """The instruction sets of this machine that the engine has code for."""
    flags = re.search(r"^flags\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    found = [name for name in ("avx2", "avx512f") if flags and name in flags[1].split()]
    return f"compared with x86-64 with {' and '.join(found) or 'neither avx2 nor avx512f'}"
