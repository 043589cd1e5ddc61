"""The Python package for aarch64: the library that the Debian compiles, packed as a wheel, and a scan by Debian's Python for arm64.

maturin says what the wheel says of itself, and a wheel of this machine's library has the files that maturin's has (tests/external/arm):
maturin's own way to build for another machine would need its compiler outside of the Debian.
"""

import base64
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

from debian import MACHINE, ROOT, TARGET

PACKAGE = ROOT / "python"
LIBRARY, PLACE = "lib_native.so", "trawl/_native.abi3.so"
# Times in a wheel: the first that the format knows, as maturin's, so that the same library gives the same bytes.
EPOCH = (1980, 1, 1, 0, 0, 0)
SUFFIXES = (".py", ".pyi", ".typed")
WHERE, AS_OF = "close > sma(close, 200)", "2013-02-22"
SCAN = f"import sys, trawl; sys.stdout.buffer.write(trawl.scan('us5', where={WHERE!r}, as_of={AS_OF!r}).to_bytes('csv'))"


def described(python, machine, folder):
    """What maturin writes into a wheel about it, for a machine: files by name."""
    words = [python.parent / "maturin", "pep517", "write-dist-info", "--metadata-directory", folder, "--interpreter", python]
    subprocess.run(list(map(str, words)), cwd=PACKAGE, check=True, capture_output=True)
    (info,) = folder.glob("*.dist-info")
    tags, _, _ = (info / "WHEEL").read_text().rpartition("-linux_")
    return {
        f"{info.name}/METADATA": (info / "METADATA").read_bytes(),
        f"{info.name}/WHEEL": f"{tags}-linux_{machine}\n".encode(),
    }


def materials(triple):
    """The bill of materials of what is linked."""
    words = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", triple]
    metadata = subprocess.run(words, cwd=PACKAGE, check=True, capture_output=True).stdout
    words = [sys.executable, ROOT / "deploy/images/sbom.py", "--package", "trawl-python"]
    return subprocess.run(list(map(str, words)), input=metadata, check=True, capture_output=True).stdout


def pack(library, triple, python, out):
    """Writes the wheel of a library; its path."""
    machine = triple.split("-")[0]
    files = {f"trawl/{path.name}": path.read_bytes() for path in (PACKAGE / "trawl").iterdir() if path.suffix in SUFFIXES}
    files[PLACE] = library.read_bytes()
    with tempfile.TemporaryDirectory() as scratch:
        about = described(python, machine, pathlib.Path(scratch))
    info = next(iter(about)).split("/")[0]
    files |= about | {f"{info}/sboms/trawl-python.cyclonedx.json": materials(triple)}
    record = ""
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"{info.removesuffix('.dist-info')}-cp310-abi3-linux_{machine}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if name == PLACE else 0o644) << 16
            archive.writestr(entry, content)
    return wheel


def compiled(debian):
    """The library, compiled in the Debian and stripped."""
    # As maturin does: an extension is linked to no library of Python, which the interpreter has in itself.
    variables = {"PYO3_BUILD_EXTENSION_MODULE": "1"}
    if debian.cargo("build", "--release", "--lib", manifest=PACKAGE / "Cargo.toml", **variables) != 0:
        sys.exit(f"tools/arm: the Python package does not compile for {TARGET}, see {debian.log}")
    built = debian.build / TARGET / "release" / LIBRARY
    stripped = built.with_name("_native.abi3.so")
    if debian.inside(f"{MACHINE}-strip --strip-unneeded -o '{stripped}' '{built}'") != 0:
        sys.exit(f"tools/arm: {built} could not be stripped, see {debian.log}")
    return stripped


def interpreter(debian):
    """The command in front of a program of Python: Debian's Python for arm64, unpacked beside the build, under qemu."""
    folder = debian.build / "python3-arm64"
    found = lambda: next(iter(sorted(folder.glob("usr/bin/python3.[0-9]*"))), None)
    if not found():
        shutil.rmtree(folder, ignore_errors=True)
        archives = folder / "archives"
        (archives / "partial").mkdir(parents=True)
        # As if nothing were installed and the machine were an Arm one, so that every library that it needs is there too.
        options = ["APT::Architecture=arm64", "Dir::State::status=/dev/null", f"Dir::Cache::archives={archives}", "APT::Sandbox::User=root"]
        words = " ".join(f"-o {option}" for option in options)
        get = f"apt-get -qq -y {words} --no-install-recommends --download-only install python3"
        # In Debian everything is under /usr, and the other names are links.
        unpack = f"for name in bin lib sbin; do ln -s usr/$name {folder}/$name; mkdir -p {folder}/usr/$name; done"
        unpack += f"; for package in {archives}/*.deb; do dpkg -x $package {folder}; done"
        if debian.inside(f"{get} || {{ apt-get -qq update; {get}; }}; {unpack}") != 0 or not found():
            sys.exit(f"tools/arm: there is no Python for arm64 to run the wheel with, see {debian.log}")
        shutil.rmtree(archives)
    return [str(debian.program("qemu-aarch64")), "-L", str(folder), str(found())], {"PYTHONHOME": str(folder / "usr")}


def check(wheel, command, variables, trawl, claims, folder):
    """Imports it out of its files, and compares the bytes of a scan with those of this machine's executable."""
    unpacked = folder / "wheel"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(unpacked), "TRAWL_DATA_ROOT": str(folder / "none")} | variables
    run = lambda program: subprocess.run([*command, "-c", program], env=environment, cwd=folder, capture_output=True)
    asked = run("import json, platform, trawl; print(json.dumps([platform.machine(), platform.python_version(), trawl.__version__]))")
    told = json.loads(asked.stdout) if asked.returncode == 0 else []
    machine = wheel.stem.rpartition("linux_")[2]
    said = f"{wheel.name} ({wheel.stat().st_size / 1e6:.1f} MB), Python {told[1]}" if told else asked.stderr.decode()[-300:]
    claims.add("docs/python.md", f"the wheel is imported by a Python for {machine}", said, told and told[0] == machine)
    words = ["scan", "--dataset", "us5", "--where", WHERE, "--as-of", AS_OF, "--quiet", "--format", "csv", "--output", "-"]
    own = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TRAWL_DATA_ROOT": str(folder / "none")}
    here = subprocess.run([trawl, *words], env=own, cwd=folder, capture_output=True)
    there = run(SCAN)
    same = there.returncode == 0 and there.stdout == here.stdout and len(here.stdout) > 0
    said = f"{len(there.stdout):,} bytes, sha256 {hashlib.sha256(there.stdout).hexdigest()[:12]}" if same else (there.stderr or there.stdout).decode()[-300:]
    claims.add("docs/python.md", "and its scan gives the bytes of this machine's executable", said, same)
