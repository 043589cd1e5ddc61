#!/usr/bin/env python3
"""The packing of tools/arm/wheel.py, over the library of a wheel that maturin built for this machine: the same files and the same words
about it, pip installs it, and it scans.

    arm_wheel.py WHEEL TRAWL PYTHON
"""

import pathlib
import platform
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools/arm"), str(ROOT / "tools/observability")]
import wheel
from claims import Claims

given, trawl, python = map(pathlib.Path, sys.argv[1:])
claims = Claims()
with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(given) as theirs:
    folder = pathlib.Path(folder)
    library = folder / "library.so"
    library.write_bytes(theirs.read(wheel.PLACE))
    triple = f"{platform.machine()}-unknown-linux-gnu"
    made = [wheel.pack(library, triple, python, folder / name) for name in ("one", "two")]
    claims.add("tools/arm/wheel.py", "the same library gives the same bytes", made[0].name, made[0].read_bytes() == made[1].read_bytes())
    with zipfile.ZipFile(made[0]) as ours:
        names = set(theirs.namelist()) ^ set(ours.namelist())
        claims.add("tools/arm/wheel.py", "it has the files of maturin's wheel", sorted(names) or f"{len(ours.namelist())} files", not names)
        about = [name for name in theirs.namelist() if name.endswith(("METADATA", "WHEEL"))]
        same = all(theirs.read(name).split() == ours.read(name).split() for name in about)
        claims.add("tools/arm/wheel.py", "and the same words about it", ", ".join(about), same and made[0].name == given.name)
    installed = folder / "installed"
    words = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--target", installed, made[0]]
    pip = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    claims.add("tools/arm/wheel.py", "pip takes it", pip.stderr[-300:] or "installed", pip.returncode == 0 and (installed / wheel.PLACE).is_file())
    wheel.check(made[0], [str(python)], {}, trawl, claims, folder)
sys.exit(1 if claims.wrong() else 0)
