"""A Debian in a folder, with Debian's own Rust and a cross compiler: it builds for aarch64, and its qemu runs what was built."""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUITE, TARGET = "trixie", "aarch64-unknown-linux-gnu"
MACHINE = "aarch64-linux-gnu"
# rustc-web is the Rust that Debian keeps current, for its browsers; it comes with the standard library of each architecture.
PACKAGES = ("rustc-web", "cargo-web", "libstd-rust-web-dev:arm64", "g++", f"gcc-{MACHINE}", f"g++-{MACHINE}", "libc6-dev:arm64")
RUNS = ("qemu-user",)
WITHOUT_RECOMMENDED = ("-y", "-qq", "-o", "APT::Sandbox::User=root", "--no-install-recommends")


def absent(why):
    print(f"SKIPPED: {why}: there is no Debian {SUITE} to build in", file=sys.stderr)
    sys.exit(77)


class Debian:
    """The folder, and what is run in it. Only its build folder is kept between runs besides; both may be deleted at any time."""

    def __init__(self, folder, log, packages=PACKAGES + RUNS):
        self.root, self.build, self.log, self.packages = folder / "root", folder / "build", log, packages
        self.cargo_home = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))

    def host(self, *command, **options):
        """A command on this machine, whose output goes to the log."""
        with open(self.log, "ab") as log:
            log.write(f"$ {shlex.join(map(str, command))}\n".encode())
            log.flush()
            return subprocess.run(list(map(str, command)), stdout=log, stderr=log, **options).returncode

    def mounts(self):
        """Commands that make the repository, Cargo's downloads and the build folder visible in the folder under the names that they have here."""
        quoted = lambda path: shlex.quote(str(path))
        mounts = [f"mount --rbind /{name} {quoted(self.root / name)}" for name in ("proc", "dev")]
        for path in (ROOT, self.cargo_home, self.build):
            there = quoted(f"{self.root}{path}")
            mounts.append(f"mkdir -p {there} && mount --bind {quoted(path)} {there}")
        return mounts

    def inside(self, command, **variables):
        """A command of the shell in the folder, with those mounts, which end with it."""
        kept = {name: os.environ[name] for name in ("http_proxy", "https_proxy") if name in os.environ}
        own = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"}
        variables = own | kept | variables
        enter = ["chroot", self.root, "env", "-i", *(f"{name}={value}" for name, value in variables.items()), "sh", "-ec", command]
        script = " && ".join([*self.mounts(), f"exec {shlex.join(map(str, enter))}"])
        return self.host("unshare", "--mount", "sh", "-ec", script)

    def program(self, name):
        return self.root / "usr/bin" / name

    def ready(self):
        """Makes the folder, or finishes one that was begun. Needs root: apt and chroot do."""
        done = self.root / "ready"
        wanted = " ".join(self.packages)
        if done.exists() and done.read_text() == wanted:
            return
        if os.geteuid() != 0:
            absent("root is needed to make a Debian in a folder")
        for tool, package in (("debootstrap", "debootstrap"), ("unshare", "util-linux"), ("apt-get", "apt")):
            if not shutil.which(tool) and (not shutil.which("apt-get") or self.install(package) != 0):
                absent(f"there is no {tool} here, and no package {package}")
        self.root.mkdir(parents=True, exist_ok=True)
        self.build.mkdir(parents=True, exist_ok=True)
        if not (self.root / "etc/debian_version").exists() or (self.root / "debootstrap").exists():
            if self.host("debootstrap", "--variant=minbase", SUITE, self.root, *mirror()) != 0:
                absent(f"debootstrap could not make a Debian {SUITE}, see {self.log}")
        # Servers are not started in there.
        (self.root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
        (self.root / "usr/sbin/policy-rc.d").chmod(0o755)
        options = shlex.join(WITHOUT_RECOMMENDED)
        foreign = ["dpkg --add-architecture arm64"] if any(name.endswith(":arm64") for name in self.packages) else []
        steps = [*foreign, "apt-get -qq update", f"apt-get {options} install {shlex.join(self.packages)}", "apt-get clean"]
        if self.inside("; ".join(steps)) != 0:
            absent(f"its packages could not be installed, see {self.log}")
        done.write_text(wanted)

    def install(self, package):
        self.host("apt-get", "-qq", "update")
        return self.host("apt-get", *WITHOUT_RECOMMENDED, "install", package)

    def version(self, name, *arguments):
        said = subprocess.run(["chroot", self.root, name, *arguments], capture_output=True, text=True).stdout
        return said.splitlines()[0] if said else "none"

    def cargo(self, *arguments, manifest=ROOT / "Cargo.toml", **more):
        """Cargo in there, for aarch64, with further variables. What it needs was downloaded by the Cargo of this machine."""
        if self.host("cargo", "fetch", "--locked", "--manifest-path", manifest, cwd=ROOT) != 0:
            sys.exit(f"cargo fetch failed, see {self.log}")
        upper, lower = TARGET.upper().replace("-", "_"), TARGET.replace("-", "_")
        flags = [f"--remap-path-prefix={self.cargo_home}/registry/src=registry", f"--remap-path-prefix={ROOT}=."]
        variables = {
            "CARGO_HOME": self.cargo_home,
            "CARGO_TARGET_DIR": self.build,
            "CARGO_NET_OFFLINE": "true",
            "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags),
            f"CARGO_TARGET_{upper}_LINKER": f"{MACHINE}-gcc",
            f"CC_{lower}": f"{MACHINE}-gcc",
            f"CXX_{lower}": f"{MACHINE}-g++",
            f"AR_{lower}": f"{MACHINE}-ar",
        }
        words = shlex.join(["cargo", *arguments, "--locked", "--target", TARGET, "--manifest-path", str(manifest)])
        return self.inside(f"cd {shlex.quote(str(ROOT))} && exec {words}", **(variables | more))

    def compiler(self, folder):
        """A script that runs the cross compiler of C++, which needs the folder's libraries."""
        script = folder / "c++"
        command = " && ".join([*self.mounts(), f'exec chroot {shlex.quote(str(self.root))} {MACHINE}-g++ "$@"'])
        script.write_text(f'#!/bin/sh\nexec unshare --mount sh -ec {shlex.quote(command)} sh "$@"\n')
        script.chmod(0o755)
        return script

    def emulator(self):
        """The command in front of a program for aarch64. qemu is static: it runs outside of the folder too."""
        return [str(self.program("qemu-aarch64")), "-L", str(self.root / "usr" / MACHINE)]


def mirror():
    """Where this machine's apt gets Debian from, unless that is debootstrap's own choice."""
    said = subprocess.run(["apt-get", "indextargets", "--format", "$(SITE)"], capture_output=True, text=True).stdout
    return [site for site in dict.fromkeys(said.split()) if site.rstrip("/").endswith("/debian")][:1]
