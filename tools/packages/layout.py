"""What a package installs where, out of an archive of tools/dist and deploy/systemd."""

import pathlib
import re
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNITS = ("trawl-coordinator.service", "trawl-worker.service")
SETTINGS = ("coordinator.env", "worker.env")
SUMMARY = "Scans a market of many symbols on one machine or on a cluster"
DESCRIPTION = """Trawl evaluates conditions and indicators on every symbol of a market, and gives one
answer that accounts for each of them: in one process, or on a cluster of
coordinators and workers that find each other in etcd. The services are installed
and not started: edit /etc/trawl first."""
# The names that distributions give to an architecture of Rust.
ARCHITECTURES = {"x86_64": ("amd64", "x86_64"), "aarch64": ("arm64", "aarch64")}
# The account, whose settings may hold secrets; running services take a new executable. Neither package starts anything.
AFTER = f"""systemd-sysusers /usr/lib/sysusers.d/trawl.conf
chgrp trawl /etc/trawl {" ".join(f"/etc/trawl/{name}" for name in SETTINGS)}
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl try-restart {" ".join(UNITS)} || true
fi
"""
BEFORE_REMOVAL = f"""if [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now {" ".join(UNITS)} || true
fi
"""
AFTER_REMOVAL = """if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
"""


class Archive:
    """An archive of tools/dist: its version, triple and files."""

    def __init__(self, path):
        named = re.fullmatch(r"trawl-(\d[^-]*)-((\w+)-.+)\.tar\.gz", path.name)
        if not named:
            raise ValueError(f"{path} is not named as tools/dist names its archives")
        self.path, self.version, self.triple, self.machine = path, named[1], named[2], named[3]
        self.deb, self.rpm = ARCHITECTURES[self.machine]
        with tarfile.open(path) as tar:
            members = [m for m in tar.getmembers() if m.isfile()]
            self.when = max(m.mtime for m in members)
            self.files = {m.name.split("/", 1)[1]: tar.extractfile(m).read() for m in members}

    def glibc(self):
        """The newest version of the C library that the executable asks for, such as 2.34."""
        asked = {tuple(map(int, found.split(b"."))) for found in re.findall(rb"GLIBC_(\d+\.\d+)\b", self.files["trawl"])}
        return ".".join(map(str, max(asked)))


def files(archive, zsh):
    """{path: (bytes, mode)}; `zsh` is where a distribution keeps completions of zsh."""
    deploy = lambda name: (ROOT / "deploy/systemd" / name).read_bytes()
    found = {"/usr/bin/trawl": (archive.files["trawl"], 0o755)}
    found |= {f"/usr/lib/systemd/system/{name}": (deploy(name), 0o644) for name in UNITS}
    found |= {f"/etc/trawl/{name}": (deploy(name), 0o640) for name in SETTINGS}
    found["/usr/lib/sysusers.d/trawl.conf"] = (deploy("trawl.sysusers.conf"), 0o644)
    document = "/usr/share/doc/trawl"
    found[f"{document}/trawl-worker-gpu.conf"] = (deploy("trawl-worker-gpu.conf"), 0o644)
    for name in ("README.md", "LICENSE", "NOTICE", "THIRD-PARTY-LICENSES.txt", "sbom.cdx.json"):
        found[f"{document}/{name}"] = (archive.files[name], 0o644)
    places = {"trawl.bash": "/usr/share/bash-completion/completions/trawl", "_trawl": f"{zsh}/_trawl"}
    places["trawl.fish"] = "/usr/share/fish/vendor_completions.d/trawl.fish"
    # An archive for another machine than the one that packed it may have none.
    found |= {path: (archive.files[f"completions/{name}"], 0o644) for name, path in places.items() if f"completions/{name}" in archive.files}
    return found


def lay(found, folder):
    """Writes those files below a folder."""
    for path, (content, mode) in found.items():
        there = folder / path.lstrip("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(content)
        there.chmod(mode)
    (folder / "etc/trawl").chmod(0o750)
