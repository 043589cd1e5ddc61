"""Packages that both lock files have are of the same versions in both."""

import pathlib
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def packages(lock):
    """Names with their versions."""
    found = {}
    for package in tomllib.loads(lock.read_text())["package"]:
        found.setdefault(package["name"], set()).add(package["version"])
    return found


def main():
    ours, theirs = packages(ROOT / "python" / "Cargo.lock"), packages(ROOT / "Cargo.lock")
    wrong = [
        f"{name}: {', '.join(sorted(versions - theirs[name]))} in python/Cargo.lock, {', '.join(sorted(theirs[name]))} in Cargo.lock"
        for name, versions in ours.items()
        if name in theirs and not versions <= theirs[name]
    ]
    if wrong:
        help = "copy Cargo.lock to python/Cargo.lock, and run: cargo metadata --manifest-path python/Cargo.toml --offline"
        sys.exit("\n".join([*wrong, help]))


if __name__ == "__main__":
    main()
