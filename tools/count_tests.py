#!/usr/bin/env python3
"""Reads the log of `cargo test --workspace` and prints, tab-separated: one line `crate NAME SECONDS` for each crate, one
line `ignored TEST` or `failed TEST` for each such test, and a last line `total PASSED FAILED IGNORED`.

    count_tests.py LOG
"""

import collections
import json
import re
import subprocess
import sys

RUNNING = re.compile(r"^ *Running (?:unittests )?\S+ \((?:.*/)?(.+?)-[0-9a-f]{16}(?:\.exe)?\)$")
DOC_TESTS = re.compile(r"^ *Doc-tests (\S+)$")
TEST = re.compile(r"^test (.+?) \.\.\. (ignored|FAILED)\b")
RESULT = re.compile(r"^test result: .*?(\d+) passed; (\d+) failed; (\d+) ignored;.* finished in ([0-9.]+)s")


def crates():
    """Test binary -> crate. A crate's own tests are named as the crate, its integration tests as they like."""
    command = ["cargo", "metadata", "--locked", "--offline", "--no-deps", "--format-version", "1"]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {target["name"].replace("-", "_"): package["name"]
            for package in metadata["packages"] for target in package["targets"]}


def main():
    crate_of, crate = crates(), "unknown"
    seconds, counts = collections.OrderedDict(), [0, 0, 0]
    with open(sys.argv[1], errors="replace") as log:
        for line in log:
            line = line.rstrip("\n")
            if found := RUNNING.match(line) or DOC_TESTS.match(line):
                crate = crate_of.get(found.group(1).replace("-", "_"), found.group(1))
            elif found := TEST.match(line):
                print("ignored" if found.group(2) == "ignored" else "failed", found.group(1), sep="\t")
            elif found := RESULT.match(line):
                counts = [total + int(n) for total, n in zip(counts, found.groups()[:3])]
                seconds[crate] = seconds.get(crate, 0.0) + float(found.group(4))
    for crate, total in seconds.items():
        print("crate", crate, f"{total:.2f}", sep="\t")
    print("total", *counts, sep="\t")


if __name__ == "__main__":
    main()
