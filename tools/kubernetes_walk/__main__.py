#!/usr/bin/env python3
"""The chart on a real control plane: kube-apiserver, kube-controller-manager, kube-scheduler and kubelets as they are released, and below
the kubelets a runtime of our own that runs the executable in namespaces (tools/kubernetes). What the chart and docs/kubernetes say is
tried, while scans run. `just kubernetes`.

    tools/kubernetes_walk [--trawl TRAWL] [--next TRAWL] [--only PART...] [--there] [--keep DIR] [--write]

Needs root: everything runs in namespaces of its own. Prints each claim with what was seen. With --write the whole is kept in
benches/results/kubernetes-DATE.json, and its tables in docs/kubernetes/tried.md. Exit code 77: a program that is needed cannot be had
here, or, with --there, is not built yet.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
# Processes and claims are those of the other tool that runs real parts.
sys.path[:0] = [str(HERE), str(HERE.parent / "observability")]
import access
import autoscale
import bars
import buckets
import devices
import earlier
import issued
import machine
import package
import policies
import scaling
import secured
import trial
from claims import Claims, claims_table, show, table
from stage import NAMESPACE, ROOT, Stage, images

# Each part is what the parts after it continue from; `trial` alone ends with nothing left.
PARTS = {
    "trial": trial.trial,
    "install": scaling.install,
    "scale": scaling.scale,
    "leader": scaling.leader,
    "drain": scaling.drain,
    "node": scaling.node_dies,
    "upgrade": scaling.upgrade,
    "access": access.accounts,
    "policies": policies.policies,
    "admitted": access.admitted,
    "import": bars.imports,
    "package": package.package,
    "hpa": autoscale.hpa,
    "keda": autoscale.keda,
    "gpu": devices.devices,
    "bucket": buckets.bucket,
    "earlier": earlier.earlier,
    "issued": issued.issued,
    "secured": secured.secured,
}
# What a part continues from besides `install`, which all but the trial do.
AFTER = {"node": ("drain",)}
# Programs without which a part is skipped; a part that was not asked for builds none.
OPTIONAL = {
    "policies": ("network-policies",),
    "package": ("registry",),
    "hpa": ("prometheus-adapter",),
    "keda": ("keda",),
    "bucket": ("minio",),
    "issued": ("cert-manager",),
    "earlier": ("earlier",),
}
NODES = 4
PAGE = ROOT / "docs/kubernetes/tried.md"


def tool(name, there, *more):
    found = subprocess.run([ROOT / "tools" / f"get-{name}", *more, *(["--there"] if there else [])], stdout=subprocess.PIPE, text=True)
    if found.returncode != 0:
        print(f"SKIPPED: no {' '.join((name, *more))}: nothing ran on Kubernetes", file=sys.stderr)
        sys.exit(77)
    return found.stdout.strip()


def optional(name, there):
    """Where a program is, or None where it is not built and is not to be, or cannot be."""
    arguments = [earlier.COMMIT] if name == "earlier" else []
    found = subprocess.run([ROOT / f"tools/get-{name}", *arguments, *(["--there"] if there else [])], stdout=subprocess.PIPE, text=True)
    return found.stdout.strip() if found.returncode == 0 else None


def programs(given):
    """Fetched before the namespaces are entered: there is no network in them."""
    etcd = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "tools/etcd-3.5"
    if given.there and not etcd.exists():
        print("SKIPPED: no etcd 3.5: nothing ran on Kubernetes", file=sys.stderr)
        sys.exit(77)
    found = {"kubernetes": tool("kubernetes", given.there), "runtime": tool("kubernetes", given.there, "runtime")}
    found |= {name: tool(name, given.there) for name in ("netfilter", "coredns")}
    found |= {"etcd": tool("etcd", False, "3.5"), "helm": tool("helm", False), "kubectl": tool("helm", False, "kubectl")}
    for part, names in OPTIONAL.items():
        found |= {name: optional(name, given.there or part not in given.only) for name in names}
    found["prometheus-crds"] = optional("prometheus-crds", given.there or "admitted" not in given.only)
    if "hpa" in given.only:
        found["prometheus"] = tool("prometheus", False)
    if "gpu" in given.only:
        found["driver"] = tool("test-driver", False)
    return found


def version(*command):
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    return re.search(r"v?(\d+\.\d+\.\d+)", ended.stdout + ended.stderr)[1]


def versions(programs):
    found = {
        "Kubernetes": version(programs["kubernetes"], "kube-apiserver", "--version"),
        "etcd": version(programs["etcd"], "--version"),
        "helm": version(programs["helm"], "version"),
        "kubectl": version(programs["kubectl"], "version", "--client"),
        "Trawl": version(programs["trawl"], "--version"),
    }
    # Folders and programs that are named after their versions.
    named = {"coredns": "CoreDNS", "keda": "KEDA", "network-policies": "kube-network-policies", "prometheus-crds": "the Prometheus operator"}
    for program in ("coredns", "network-policies", "prometheus-crds", "prometheus-adapter", "keda", "cert-manager", "registry"):
        if programs[program]:
            found[named.get(program, program)] = re.search(r"-(\d+\.\d+\.\d+)", pathlib.Path(programs[program]).name)[1]
    return found


def commit():
    """What was checked out, with a sign where files differed from it."""
    git = lambda *words: subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


def page(result, name):
    """What docs/kubernetes/tried.md says of a whole run."""
    parts = ", ".join(f"{part} {number}" for part, number in result["versions"].items())
    minutes = sum(result["seconds"].values()) / 60
    text = f"In {minutes:.0f} minutes on {result['machine']['cores']} cores, with {parts}; all figures are in `benches/results/{name}`.\n\n"
    text += claims_table(result["claims"])
    scaled = [(way, *seconds) for way, seconds in result["figures"]["scaled_seconds"].items()]
    text += "\nFrom the command, while scans run:\n\n"
    text += table(("Workers", "All registered, s", "All pods ready, others gone, s"), scaled)
    text += "\nSeconds of the parts:\n\n" + table(("Part", "Seconds"), result["seconds"].items())
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trawl", default=ROOT / "target/ci/trawl", type=pathlib.Path)
    parser.add_argument("--next", type=pathlib.Path, help="what an upgrade rolls out; the same executable without it")
    parser.add_argument("--only", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--there", action="store_true", help="build no tool")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for logs, which is kept")
    parser.add_argument("--write", action="store_true", help="keep the result and write the tables into docs/kubernetes/tried.md")
    given = parser.parse_args()
    for part in [part for part in given.only if part != "trial"]:
        more = [before for before in ("install", *AFTER.get(part, ())) if before not in given.only]
        if more and not os.environ.get(machine.INSIDE):
            print(f"{part} continues from {' and '.join(more)}: run too")
        given.only += more
    if not given.trawl.is_file():
        sys.exit(f"there is no {given.trawl}: cargo build --profile ci -p trawl")
    found = programs(given) | {"trawl": given.trawl.resolve()}
    machine.enter()
    folder = given.keep or pathlib.Path(tempfile.mkdtemp(prefix="trawl-kubernetes-walk-"))
    folder.mkdir(parents=True, exist_ok=True)
    # Users of pods go through it to their volumes.
    folder.chmod(0o755)
    began, claims, seconds = time.monotonic(), Claims(), {}
    kubernetes = machine.Kubernetes(found, folder.resolve(), NODES)
    table = images(found["trawl"], found["etcd"])
    following = images((given.next or found["trawl"]).resolve(), found["etcd"])
    kubernetes.images(**table, **{name.replace(":0.1.0", ":next"): row for name, row in following.items() if ":0.1.0" in name})
    stage = Stage(kubernetes, claims, folder.resolve())
    try:
        kubernetes.start()
        seconds["control plane"] = round(time.monotonic() - began)
        print(f"- control plane and {NODES} nodes: {seconds['control plane']} s", flush=True)
        stage.namespace()
        kubernetes.watch_ends(NAMESPACE)
        for part in [p for p in PARTS if p in given.only]:
            print(f"- {part}", flush=True)
            missing = [name for name in OPTIONAL.get(part, ()) if not found[name]]
            if missing:
                claims.skip("this run", f"the part {part}", f"no {missing[0]}: tools/get-{missing[0]} builds it")
                continue
            at = time.monotonic()
            PARTS[part](stage)
            seconds[part] = round(time.monotonic() - at)
    except (OSError, RuntimeError, LookupError, ValueError, TypeError, subprocess.SubprocessError) as error:
        traceback.print_exc()
        claims.add("this run", "it comes to its end", re.sub(r"\s+", " ", str(error))[-600:], False)
        stage.look()
    finally:
        kubernetes.stop()
    wrong, skipped = claims.wrong(), claims.skipped()
    result = {
        "benchmark": "kubernetes",
        "commit": commit(),
        "machine": {"architecture": platform.machine(), "cores": os.cpu_count()},
        "versions": versions(found),
        "seconds": seconds,
        "figures": stage.figures,
    }
    print(json.dumps(result, indent=1))
    result["claims"] = claims.rows
    # A part that ended early has no time.
    whole = set(PARTS) <= set(seconds) and not skipped
    if given.write and not whole:
        print("nothing was written: not every part was asked for and came to its end, or something was not tried", file=sys.stderr)
    if given.write and whole:
        path = ROOT / f"benches/results/kubernetes-{datetime.date.today().isoformat()}.json"
        path.write_text(json.dumps(result, indent=1) + "\n")
        show(PAGE, "just kubernetes --write", page(result, path.name))
        print(f"wrote {path.relative_to(ROOT)} and {PAGE.relative_to(ROOT)}")
    if not given.keep and not wrong:
        shutil.rmtree(folder, ignore_errors=True)
    untried = f", {len(skipped)} NOT TRIED" if skipped else ""
    logs = f"; logs in {folder}" if wrong or given.keep else ""
    print(f"kubernetes: {len(claims.rows)} claims, {len(wrong)} wrong{untried}, {time.monotonic() - began:.0f} s{logs}", flush=True)
    # Threads that watch, and whatever else is left, end with the namespaces.
    os._exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
