#!/usr/bin/env python3
"""Builds Trawl for aarch64, runs it under qemu and compares it with the executable of this machine, which is to be x86-64. `just arm`.

    tools/arm [--trawl TRAWL] [--profile release|dist] [--only PART...] [--cases N] [--dist] [--wheel] [--write] [--dry]

A Debian in target/arm/root has the compilers (debootstrap, root is needed); target/arm/build keeps what was built. Parts: compare (every
function, a market, scans, the README's first command), cluster, golden (reference values of TA-Lib and others), agreement (random scans
against the reference evaluator, and their bits against those of this machine's test program). --dist packs the archive of
tools/dist and tries it under qemu. With --write the table is put into docs/arm.md. qemu's times mean nothing and are not reported.
--wheel compiles the Python package, packs its wheel into target/dist and scans with it under qemu; `--only --wheel` does nothing else. --dry builds
and emulates nothing: this machine's programs take the place of those for aarch64, so that the comparisons themselves are
tried (tests/external/arm). Exit code 77: it cannot be built here.
"""

import argparse
import datetime
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "observability")]
import agree
import compare
import wheel
from claims import Claims, claims_table, show
from debian import MACHINE, ROOT, SUITE, TARGET, Debian

PARTS = ("compare", "cluster", "golden", "agreement")
PAGE = ROOT / "docs/arm.md"
# The test program that a part needs, and the profile that it is built with.
TESTS = {"golden": "engine", "agreement": "integration"}
TESTED = "release"
# The mark of each profile's table in docs/arm.md.
WRITTEN = {"release": "just arm --write", "dist": "just arm --profile dist --dist --write"}
WHEEL = "just arm --only --wheel --write"
# Tests of the engine: against reference values, against definitions from scratch, and what must hold of any values.
ENGINE = ("golden::", "properties::", "elementary::", "resume::", "numerics::")
CASES = 400


def built(debian, profile, tests):
    """Builds the workspace with a profile, and test programs with profile `release`. Paths of the executable and of those.

    Test programs are never built with `dist`: each would be optimised across all crates, a quarter of an hour for what nobody installs.
    """
    together = profile == TESTED
    wanted = [word for name in tests for word in ("--test", name)]
    steps = [[profile, "--workspace", "--bins", "--lib", *(wanted if together else [])]]
    if wanted and not together:
        steps.append([TESTED, "--workspace", *wanted])
    for words in steps:
        if debian.cargo("build", "--profile", *words) != 0:
            sys.exit(f"tools/arm: the workspace does not compile for {TARGET}, see {debian.log}")
    folder = debian.build / TARGET
    return folder / profile / "trawl", {name: newest(folder / TESTED / "deps", name) for name in tests}


def newest(folder, name):
    """The test program that Cargo made last."""
    found = [path for path in folder.glob(f"{name}-*") if not path.suffix]
    if not found:
        sys.exit(f"there is no test program {name} in {folder}: cargo build --profile ci --workspace --all-targets")
    return max(found, key=lambda path: path.stat().st_mtime)


def wrapped(debian, program, folder):
    """A script that runs a program under qemu."""
    script = folder / program.name
    command = " ".join(f"'{word}'" for word in [*debian.emulator(), str(program)])
    script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    script.chmod(0o755)
    return script


def tested(command, filters, environment=None):
    """What a test program said of tests whose names begin so: passed, failed, output."""
    words = [*map(str, command), *filters, "--nocapture"]
    said = subprocess.run(words, cwd=ROOT / "tests", env=os.environ | (environment or {}), capture_output=True, text=True)
    counts = re.search(r"(\d+) passed; (\d+) failed", said.stdout)
    passed, failed = map(int, counts.groups()) if counts else (0, 1)
    return passed, failed, said.stdout + said.stderr


def golden(debian, tests, claims, folder, log):
    # Generated kernels are compiled by the tests themselves, into objects that they keep.
    shutil.rmtree(debian.build / TARGET / "tmp/emulated", ignore_errors=True)
    passed, failed, said = tested([*debian.emulator(), tests["engine"]], ENGINE, {"CXX": str(debian.compiler(folder))})
    log.write_text(said)
    names = ", ".join(name.strip(":") for name in ENGINE)
    told = f"{passed} passed, {failed} failed" + (f", see {log}" if failed else "")
    claims.add("CONTRIBUTING.md", f"tests of the engine: {names}", told, passed and not failed)


def agreement(debian, tests, claims, cases, here, log):
    environment = {"TRAWL_AGREEMENT_CASES": str(cases)}
    passed, failed, said = tested([*debian.emulator(), tests["integration"]], [agree.TESTS], environment)
    log.write_text(said)
    there = agree.lines(said)
    here = agree.lines(tested([here], [agree.TESTS], environment)[2])
    for bars in agree.BARS:
        line = there.get(bars)
        told = line or f"{passed} passed, {failed} failed, no line about {bars}, see {log}"
        claims.add("CONTRIBUTING.md", f"random scans of {bars} agree with the reference evaluator", told, line and passed and not failed)
        found = here.get(bars)
        told = found.split()[-1] if found else "no bits"
        claims.add("ARCHITECTURE.md", "and give the bits of this machine's build", told, found and line == found)


def python_package(debian, trawl, claims, folder, out):
    """The wheel: packed, imported, and a scan by it."""
    python = subprocess.run([ROOT / "tools/get-venv", "python"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    made = wheel.pack(wheel.compiled(debian), TARGET, pathlib.Path(python), out)
    wheel.check(made, *wheel.interpreter(debian), trawl, claims, folder)


def packed(debian, program, claims):
    """The archive of a release, of the executable that was built."""
    stripped = program.with_name("trawl.stripped")
    debian.inside(f"{MACHINE}-strip --strip-all -o '{stripped}' '{program}'")
    words = [sys.executable, ROOT / "tools/dist", "--target", TARGET, "--binary", stripped]
    words += ["--run-with", shlex.join(debian.emulator())]
    ended = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    done = ended.returncode == 0
    told = ended.stdout.strip().splitlines()[-1].rsplit("/", 1)[1] if done else ended.stderr[-300:]
    claims.add("tools/dist", "the archive, unpacked in an empty folder, runs its first scan", told, done)


class Here:
    """This machine in place of the Debian, for --dry."""

    def __init__(self, folder):
        self.build = folder

    def emulator(self):
        return []

    def compiler(self, folder):
        return "c++"


def state():
    """Of which commit the programs are, and when."""
    said = lambda *words: subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    changed = " with changes" if said("status", "--porcelain", "--untracked-files=no") else ""
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, commit {said('rev-parse', '--short=8', 'HEAD') or 'unknown'}{changed}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trawl", default=ROOT / "target/ci/trawl", type=pathlib.Path, help="this machine's executable")
    parser.add_argument("--profile", default="release", choices=("release", "dist"))
    parser.add_argument("--only", nargs="*", default=PARTS, choices=PARTS)
    parser.add_argument("--cases", type=int, default=CASES, help="random scans")
    parser.add_argument("--dist", action="store_true", help="pack the archive of tools/dist")
    parser.add_argument("--wheel", action="store_true", help="compile the Python package, pack its wheel into target/dist and try it")
    parser.add_argument("--write", action="store_true", help="write the table into docs/arm.md")
    parser.add_argument("--dry", action="store_true", help="build and emulate nothing: compare this machine's programs with themselves")
    given = parser.parse_args()
    if given.dry and (given.dist or given.wheel or given.write):
        parser.error("--dry compares this machine with itself: there is nothing to pack, and nothing to write down")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "arm"
    here, wanted = given.trawl.resolve(), [TESTS[part] for part in given.only if part in TESTS]
    claims, folder = Claims(), pathlib.Path(tempfile.mkdtemp(prefix="trawl-arm-"))
    if given.dry:
        debian, target, program = Here(folder), folder, here
        tests = {name: newest(here.parent / "deps", name) for name in wanted}
    else:
        target.mkdir(parents=True, exist_ok=True)
        debian = Debian(target, target / "log")
        debian.log.write_text("")
        debian.ready()
        rust, qemu = debian.version("rustc", "--version"), debian.version("qemu-aarch64", "--version")
        print(f"Debian {SUITE}: {rust}; {qemu}", flush=True)
        began, of = time.monotonic(), state()
        # With the wheel alone, the workspace is not needed.
        program, tests = built(debian, given.profile, wanted) if given.only or given.dist else (None, {})
        print(f"the workspace of {of} is built, profile {given.profile}, in {time.monotonic() - began:.0f} s", flush=True)
    both = compare.Both(here, program and wrapped(debian, program, folder), folder, claims)
    if "compare" in given.only:
        compare.readme(both)
        compare.functions(both)
        compare.scans(both)
    if "cluster" in given.only:
        etcd = subprocess.run([ROOT / "tools/get-etcd"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        compare.cluster(both, etcd)
    if "golden" in given.only:
        golden(debian, tests, claims, folder, target / "golden.log")
    if "agreement" in given.only:
        agreement(debian, tests, claims, given.cases, newest(here.parent / "deps", "integration"), target / "agreement.log")
    if given.dist:
        packed(debian, program, claims)
    if given.wheel:
        python_package(debian, here, claims, folder, target.parent / "dist")
    wrong = claims.wrong()
    if given.write and not wrong:
        versions = f"Of {of}: {rust}, {qemu}, profile {given.profile}, {compare.processor()}."
        show(PAGE, WRITTEN[given.profile] if program else WHEEL, versions + "\n\n" + claims_table(claims.rows))
        print(f"wrote {PAGE.relative_to(ROOT)}")
    if not wrong:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"arm{' (dry)' if given.dry else ''}: {len(claims.rows)} claims, {len(wrong)} wrong" + (f"; see {folder} and {target}" if wrong else ""))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
