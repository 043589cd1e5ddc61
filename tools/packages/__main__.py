#!/usr/bin/env python3
"""Packages for Debian's and for Red Hat's kinds of systems out of the archives of tools/dist, and what an operator does with them, under a
real systemd. `just packages`.

    tools/packages [--archive FILE...] [--maintainer TEXT] [--write]

Writes trawl_VERSION-1_ARCHITECTURE.deb and trawl-VERSION-1.ARCHITECTURE.rpm beside each archive, and adds them to SHA256SUMS there; the
same archive gives the same bytes. The packages for this machine are then installed, configured, started, killed, upgraded, stopped and
removed in a Debian in target/packages that boots in namespaces of its own (debootstrap; root is needed). With --write the table is put
into deploy/systemd/README.md. Exit codes: 0 all held, 1 something did not, 77 it cannot be done here.
"""

import argparse
import importlib.machinery
import importlib.util
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tools/arm"), str(ROOT / "tools/observability")]
import build
from claims import Claims, claims_table, show
from debian import Debian
from layout import Archive

PAGE = ROOT / "deploy/systemd/README.md"
PACKAGES = ("systemd", "dbus", "procps", "rpm")
NAMESPACES = ("--mount", "--pid", "--fork", "--ipc", "--uts", "--net", "--cgroup")
BOOT_SECONDS = 400
MAINTAINER = "Trawl <trawl@localhost.localdomain>"


def etcd():
    said = subprocess.run([ROOT / "tools/get-etcd"], stdout=subprocess.PIPE, text=True)
    return pathlib.Path(said.stdout.strip()) if said.returncode == 0 else sys.exit("tools/packages: there is no etcd for the trial")


def record(path):
    """Adds a file to SHA256SUMS beside it, as tools/dist does."""
    loader = importlib.machinery.SourceFileLoader("dist", str(ROOT / "tools/dist"))
    dist = importlib.util.module_from_spec(importlib.util.spec_from_loader("dist", loader))
    loader.exec_module(dist)
    dist.record(path.parent, path)


def made(debian, archive, maintainer, claims):
    """Both packages of an archive, each built twice."""
    kinds = {"deb": lambda folder: build.deb(debian, archive, folder, maintainer), "rpm": lambda folder: build.rpm(debian, archive, folder)}
    found = {}
    for kind, build_one in kinds.items():
        folder = debian.build / "scratch"
        twice = []
        for _ in range(2):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            package = build_one(folder)
            twice.append(package.read_bytes())
        path = archive.path.with_name(package.name)
        path.write_bytes(twice[0])
        record(path)
        found[kind] = path
        same = twice[0] == twice[1]
        told = f"{len(twice[0]) / 1e6:.1f} MB, needs glibc {archive.glibc()}; built twice: {'the same bytes' if same else 'other bytes'}"
        claims.add("tools/packages", f"`{path.name}`", told, same)
    return found


def tried(debian, kind, package, claims):
    """One package under a systemd."""
    folder = debian.build / f"trial-{kind}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(package, folder / f"package.{kind}")
    shutil.copy(etcd(), folder / "etcd")
    shutil.copy(HERE / "trial.sh", folder)
    command = ["unshare", *NAMESPACES, "sh", HERE / "boot.sh", debian.root, folder, kind]
    ended = debian.host("timeout", "--kill-after=5", str(BOOT_SECONDS), *command)
    lines = (folder / f"{kind}.claims").read_text().splitlines() if (folder / f"{kind}.claims").exists() else []
    for line in lines:
        what, seen, holds = line.split("\t")
        claims.add(kind, what, seen, holds == "yes")
    claims.add(kind, "the trial comes to its end", f"exit code {ended}, {len(lines)} claims", ended == 0 and lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    parser.add_argument("--archive", nargs="*", type=pathlib.Path, help="archives of tools/dist [default: those in target/dist]")
    parser.add_argument("--maintainer", default=MAINTAINER, help="who answers for the package")
    parser.add_argument("--only", nargs="*", default=["deb", "rpm"], choices=["deb", "rpm"], help="what is tried under a systemd")
    parser.add_argument("--write", action="store_true", help="write the table into deploy/systemd/README.md")
    given = parser.parse_args()
    archives = given.archive or sorted((target / "dist").glob("trawl-*.tar.gz"))
    if not archives:
        sys.exit("tools/packages: there is no archive in target/dist: tools/dist makes one")
    folder = target / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    debian = Debian(folder, folder / "log", PACKAGES)
    debian.log.write_text("")
    debian.ready()
    debian.build.mkdir(exist_ok=True)
    began, claims = time.monotonic(), Claims()
    for path in archives:
        archive = Archive(path.resolve())
        packages = made(debian, archive, given.maintainer, claims)
        if archive.machine == platform.machine():
            for kind, package in [pair for pair in packages.items() if pair[0] in given.only]:
                tried(debian, kind, package, claims)
    wrong = claims.wrong()
    if given.write and not wrong and len(given.only) == 2:
        systemd = debian.version("systemctl", "--version").split("(")[0].strip()
        text = f"Debian {(debian.root / 'etc/debian_version').read_text().strip()}, {systemd}, {debian.version('rpm', '--version')}.\n\n"
        show(PAGE, "just packages --write", text + claims_table(claims.rows))
        print(f"wrote {PAGE.relative_to(ROOT)}")
    logs = f"; see {folder}" if wrong else ""
    print(f"packages: {len(claims.rows)} claims, {len(wrong)} wrong, {time.monotonic() - began:.0f} s{logs}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
