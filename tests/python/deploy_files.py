#!/usr/bin/env python3
"""Checks the files that build and start containers, as far as that needs no container engine: hadolint over the Dockerfile, the stages
that images are made of, the bill of materials, the build script's commands, the digests that are written, and the compose file."""

import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
IMAGES = ("coordinator", "worker", "worker-cuda", "cli")
# Registries that are named in full, so that the result does not depend on an engine's default.
REGISTRY = re.compile(r"^(docker\.io|quay\.io|gcr\.io)/.+:[\w.-]+$")
problems = []


def check(holds, what):
    if not holds:
        problems.append(what)


def run(*command, **more):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=ROOT, **more)


def dockerfile():
    path = ROOT / "deploy/images/Dockerfile"
    linted = run(pathlib.Path(sys.executable).parent / "hadolint", "--failure-threshold", "info", path)
    check(linted.returncode == 0, f"hadolint:\n{linted.stdout}{linted.stderr}")
    text = re.sub(r"\\\n\s*", " ", path.read_text())
    defaults = dict(re.findall(r"^ARG (\w+)=(\S+)$", text.split("\nFROM", 1)[0], re.M))
    for name, image in defaults.items():
        if name == "PROGRAM":
            continue
        check(REGISTRY.match(image) and not image.endswith(":latest"), f"Dockerfile: {name}={image} is not pinned")
    stages, current = {}, None
    for line in text.splitlines():
        if begin := re.match(r"FROM (?:--platform=\S+ )?(\S+) AS (\S+)$", line):
            current = stages.setdefault(begin[2], {"from": begin[1], "lines": []})
        elif current is not None and line.strip() and not line.startswith("#"):
            current["lines"].append(line)

    def of(stage):
        """All lines of an image, with those of the stages it is made from."""
        base = stages[stage]["from"]
        return (of(base) if base in stages else []) + stages[stage]["lines"]

    for image in IMAGES:
        lines = of(image)
        root = stages[image]["from"]
        while root in stages:
            root = stages[root]["from"]
        check(root == "${RUNTIME_IMAGE}", f"{image} is made of {root}")
        check("distroless" in defaults["RUNTIME_IMAGE"], "the images would have a shell")
        users = [line for line in lines if line.startswith("USER ")]
        check(users == ["USER 65532:65532"], f"{image} runs as {users}")
        check(
            not [line for line in lines if line.startswith(("RUN ", "ADD "))],
            f"{image}: something is run in it, or added",
        )
        check('ENTRYPOINT ["/usr/bin/trawl"]' in lines, f"{image}: signals go to somebody else")
        check("STOPSIGNAL SIGTERM" in lines, f"{image}: how it is stopped")
        labels = " ".join(line for line in lines if line.startswith("LABEL "))
        for label in ("title", "description", "licenses", "version", "revision", "created"):
            check(f"org.opencontainers.image.{label}=" in labels, f"{image}: no label {label}")
    # Without a compiler where the executable is an archive's.
    def reached(stage, program):
        """The stages that an image needs, where the executable comes from this one."""
        stage = stage.replace("${PROGRAM}", program).replace("${TARGETARCH}", "arm64")
        if stage not in stages:
            return set()
        lines = " ".join(stages[stage]["lines"])
        needs = [stages[stage]["from"], *re.findall(r"--from=(\S+)", lines)]
        return {stage}.union(*(reached(need, program) for need in needs))

    check(defaults["PROGRAM"] == "compiled", f"the executable is {defaults['PROGRAM']} unless something else is wanted")
    for image in IMAGES:
        check("build" in reached(image, "compiled"), f"{image}: nothing is compiled for it")
        of_archive = reached(image, "archive")
        check("build" not in of_archive and "archive-arm64" in of_archive, f"{image} of an archive is made of {of_archive}")
    command = lambda image: [line for line in stages[image]["lines"] if line.startswith("CMD ")]
    check(
        command("coordinator") == ['CMD ["coordinator"]'] and command("worker-cuda") == ['CMD ["worker"]'], "commands"
    )
    build = " ".join(stages["build"]["lines"])
    for word in ("--locked", "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "sbom.py"):
        check(word in build, f"the build stage lacks {word}")
    # The run-time compiler that the kernels are tested with.
    wheel = re.search(r"^nvidia-cuda-nvrtc==(\d+\.\d+)\.", (ROOT / "tests/requirements.txt").read_text(), re.M)[1]
    check(
        f"cuda:{wheel}." in defaults["CUDA_IMAGE"],
        f"tests compile with NVRTC {wheel}, the image is {defaults['CUDA_IMAGE']}",
    )
    # Whatever is not in the context cannot be copied, and whatever the workspace names must be in it.
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    members = re.search(r"^members = \[(.*)\]", (ROOT / "Cargo.toml").read_text(), re.M)[1].replace('"', "").split(", ")
    for member in members:
        there = any(k == member or member.startswith(f"{k}/") or k.startswith(f"{member}/Cargo.toml") for k in kept)
        check(there, f".dockerignore leaves {member} out")
    for path in kept:
        check((ROOT / path).exists(), f".dockerignore keeps {path}, which is not there")
    return f"{len(IMAGES)} images of {len(stages)} stages"


def bill_of_materials():
    package = {
        "id": "path+file:///somewhere/cli#a@1",
        "name": "a",
        "version": "1",
        "source": None,
        "license": "Apache-2.0",
    }
    registry = "registry+https://example.invalid"
    others = [
        {"id": f"{registry}#{n}@2", "name": n, "version": "2", "source": registry, "license": "MIT/Apache-2.0"}
        for n in "bcd"
    ]
    needs = lambda *pairs: [{"pkg": f"{registry}#{n}@2", "dep_kinds": [{"kind": kind}]} for n, kind in pairs]
    nodes = [
        {"id": package["id"], "deps": needs(("b", None), ("c", "dev"))},
        {"id": others[0]["id"], "deps": needs(("d", "build"))},
    ]
    nodes += [{"id": o["id"], "deps": []} for o in others[1:]]
    metadata = {"packages": [package, *others], "workspace_members": [package["id"]], "resolve": {"nodes": nodes}}
    made = run(sys.executable, "deploy/images/sbom.py", "--package", "a", input=json.dumps(metadata))
    bom = json.loads(made.stdout)
    names = [c["name"] for c in bom["components"]]
    check(names == ["b"], f"the bill of materials holds {names}: what is linked, not what builds and tests need")
    check(bom["components"][0]["purl"] == "pkg:cargo/b@2", f"{bom['components'][0]}")
    check(bom["components"][0]["licenses"] == [{"expression": "MIT OR Apache-2.0"}], f"{bom['components'][0]}")
    check("somewhere" not in made.stdout, "the bill of materials contains the build directory")
    return "the bill of materials"


def build_script():
    printed = run("deploy/images/build", "--dry-run").stdout.splitlines()
    check([re.search(r"--target (\S+)", line)[1] for line in printed] == list(IMAGES), f"deploy/images/build: {printed}")
    pushed = run("deploy/images/build", "--dry-run", "--push", "--registry", "r.example.org/x/", "cli").stdout
    for word in (
        "--tag r.example.org/x/trawl/cli:",
        "--platform linux/amd64,linux/arm64",
        "--sbom=true",
        "--provenance=mode=max",
        "--push",
    ):
        check(word in pushed, f"deploy/images/build --push lacks {word}: {pushed}")
    check(run("deploy/images/build", "wroker").returncode == 2, "deploy/images/build takes an unknown image")
    # It runs the commands that it prints: checked with a fake engine that records its calls.
    with tempfile.TemporaryDirectory() as folder:
        engine = pathlib.Path(folder) / "docker"
        engine.write_text('#!/bin/sh\necho "docker $*"\n')
        engine.chmod(0o755)
        environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
        called = run("deploy/images/build", "worker", env=environment).stdout
        printed = run("deploy/images/build", "--dry-run", "worker", env=environment).stdout
    check(
        called == printed and "buildx build --target worker" in called,
        f"deploy/images/build: {called} is not {printed}",
    )
    return "the build script"


def archive(folder, triple):
    """An archive as tools/dist makes it, and its line in SHA256SUMS."""
    version = re.search(r'^\[workspace\.package\]\nversion = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    name = f"trawl-{version}-{triple}"
    path = folder / f"{name}.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for file, mode in (("trawl", 0o755), ("LICENSE", 0o644), ("sbom.cdx.json", 0o644), ("completions/trawl.bash", 0o644)):
            entry = tarfile.TarInfo(f"{name}/{file}")
            entry.size, entry.mode = len(file), mode
            tar.addfile(entry, io.BytesIO(file.encode()))
    return path, f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"


def images_of_archives():
    """The build script with archives: what the Dockerfile gets in place of a compiler, and what is refused."""
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        made = [archive(scratch, triple) for triple in ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")]
        (scratch / "SHA256SUMS").write_text("".join(line for _, line in made))
        environment = os.environ | {"CARGO_TARGET_DIR": str(scratch / "target")}
        build = lambda *words: run("deploy/images/build", "--dry-run", "--archives", scratch, *words, env=environment)
        both = build("--platforms", "linux/amd64,linux/arm64", "cli").stdout
        for word in ("--build-arg PROGRAM=archive", "--build-context archive-amd64=", "--build-context archive-arm64="):
            check(word in both, f"deploy/images/build --archives lacks {word}: {both}")
        folder = pathlib.Path(re.search(r"archive-arm64=(\S+)", both)[1])
        files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        expected = {"usr/bin/trawl", "usr/share/doc/trawl/LICENSE", "usr/share/doc/trawl/sbom.cdx.json"}
        check(files == expected, f"deploy/images/build --archives: the images would hold {sorted(files)}")
        check(os.access(folder / "usr/bin/trawl", os.X_OK), "deploy/images/build --archives: the program may not be run")
        one = build("--platforms", "linux/arm64", "cli").stdout
        check("archive-amd64" not in one and "archive-arm64" in one, f"deploy/images/build --archives: {one}")
        check(build("--platforms", "linux/riscv64", "cli").returncode == 2, "an archive of a platform that there is not")
        made[1][0].write_bytes(made[0][0].read_bytes())
        other = build("--platforms", "linux/arm64", "cli")
        check(other.returncode == 1 and "SHA256SUMS" in other.stderr, f"an archive with another checksum is taken: {other.stderr}")
        made[1][0].unlink()
        absent = build("--platforms", "linux/arm64", "cli")
        check(absent.returncode == 1 and "tools/dist --target" in absent.stderr, f"an archive that is missing: {absent.stderr}")
    return "images of archives"


PINNED = (
    "deploy/compose.yaml", "deploy/cluster/compose.yaml", "deploy/kubernetes/jaeger.yaml", "deploy/kubernetes/load-bars.yaml",
    "deploy/kubernetes/collector-values.yaml",
)


def pins():
    """deploy/pin-images over copies of the files, with a program in place of skopeo: no image of others is left without a digest."""

    def images(part):
        if isinstance(part, dict):
            of = part.get("image")
            if isinstance(of, dict) and "tag" in of:
                yield f"{of['repository']}:{of['tag']}" + (f"@{of['digest']}" if "digest" in of else "")
            elif isinstance(of, str):
                yield of
        for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            yield from images(inner)

    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for name in (*PINNED, "deploy/images/Dockerfile", "helm/trawl/values.yaml", "deploy/pin-images"):
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, scratch / name)
        skopeo = scratch / "bin/skopeo"
        skopeo.parent.mkdir()
        skopeo.write_text('#!/bin/sh\necho "$3"\n')
        skopeo.chmod(0o755)
        environment = os.environ | {"PATH": f"{skopeo.parent}:{os.environ['PATH']}"}
        pin = lambda: run(scratch / "deploy/pin-images", env=environment)
        found = pin()
        check(found.returncode == 0, f"deploy/pin-images: {found.stderr}")
        texts = lambda: {name: (scratch / name).read_text() for name in (*PINNED, "deploy/images/Dockerfile")}
        once = texts()
        pin()
        check(texts() == once, "deploy/pin-images writes something else when it is run again")
        seen = [image for name in PINNED for part in yaml.safe_load_all(once[name]) for image in images(part)]
        seen += re.findall(r"^(?:ARG \w+_IMAGE|# syntax)=(\S+)$", once["deploy/images/Dockerfile"], re.M)
        seen.append(yaml.safe_load((scratch / "helm/trawl/values.yaml").read_text())["etcd"]["trial"]["image"])
        seen = [image for image in seen if "${" not in image]
        for image in seen:
            # What skopeo was asked for is what it printed.
            tagged, _, digest = image.partition("@sha256:")
            asked = hashlib.sha256(f"docker://{tagged}\n".encode()).hexdigest()
            check(digest == asked, f"deploy/pin-images: {image} has no digest, or another image's")
        listed = set(run("deploy/pin-images", "--list").stdout.split())
        check(listed == {image.split("@")[0] for image in seen}, f"deploy/pin-images --list: {listed}")
    return f"{len(seen)} digests"


def compose():
    given = yaml.safe_load((ROOT / "deploy/cluster/compose.yaml").read_text())
    services = given["services"]
    roles = {name.rsplit("-", 1)[0] for name in services}
    count = lambda role: len([name for name in services if name.startswith(f"{role}-")])
    check(
        count("coordinator") == 2 and count("worker") == 3 and {"etcd", "jaeger"} <= roles,
        f"compose: {sorted(services)}",
    )
    version = re.search(r'^\[workspace\.package\]\nversion = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    for name, service in services.items():
        check(
            service["read_only"] is True and service["cap_drop"] == ["ALL"],
            f"compose: {name} may do more than it needs",
        )
        check(
            service["security_opt"] == ["no-new-privileges:true"] and "privileged" not in service,
            f"compose: privileges of {name}",
        )
        for port in service.get("ports", []):
            check(port.startswith("127.0.0.1:"), f"compose: {name} shows {port} to other machines")
        for volume in service.get("volumes", []):
            check(volume.split(":")[0] in given["volumes"], f"compose: {name} mounts {volume}")
        environment = service.get("environment", {})
        image = service["image"]
        if "trawl/" in image:
            check(
                image.endswith(f"${{TRAWL_TAG:-{version}}}") and service["user"] == "65532:65532",
                f"compose: {name} is {image}",
            )
            check(image.split("trawl/")[1].split(":")[0] == name.rsplit("-", 1)[0], f"compose: {name} is {image}")
        else:
            check(REGISTRY.match(image), f"compose: {image} is not pinned")
        if "TRAWL_LISTEN" in environment:
            port = environment["TRAWL_LISTEN"].rsplit(":", 1)[1]
            check(
                environment["TRAWL_ADVERTISE"] == f"{name}:{port}",
                f"compose: {name} is at {environment['TRAWL_ADVERTISE']}",
            )
            check(environment["TRAWL_ID"] == name, f"compose: {name} calls itself {environment['TRAWL_ID']}")
            check(environment["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://jaeger:4317", f"compose: traces of {name}")
            check(int(service["stop_grace_period"][:-1]) >= 10 + 15, f"compose: {name} is killed while it drains")
    # `up --wait` waits for health checks. Whoever has none: a command, and what others or nobody can ask.
    for path, without in (("deploy/cluster/compose.yaml", {"cli"}), ("deploy/compose.yaml", {"otelcol", "dcgm"})):
        every = yaml.safe_load((ROOT / path).read_text())["services"]
        unchecked = {name.rsplit("-", 1)[0] for name, service in every.items() if "healthcheck" not in service}
        check(unchecked == without, f"{path}: without a health check: {sorted(unchecked)}, expected {sorted(without)}")
    for name in (name for name in services if name.startswith(("coordinator-", "worker-"))):
        probed = services[name]["healthcheck"]["test"][1:]
        check(probed == ["/usr/bin/trawl", "probe", services[name]["environment"]["TRAWL_HEALTH"]], f"compose: {name} asks itself by {probed}")
    # The collector's port is that of its configuration.
    asks = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]["otelcol-ready"]
    port = re.search(r"OTELCOL_HEALTH:-127\.0\.0\.1:(\d+)", (ROOT / "deploy/otelcol/config.yaml").read_text())[1]
    check(asks["healthcheck"]["test"][-1] == f"http://127.0.0.1:{port}/", f"deploy/compose.yaml: {asks['healthcheck']}")
    flags = services["etcd"]["command"]
    check(
        "--auto-compaction-mode=periodic" in flags and "--auto-compaction-retention=5m" in flags,
        "compose: etcd keeps every revision for good",
    )
    # The same Jaeger here and in deploy/compose.yaml.
    observed = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]["jaeger"]["image"]
    check(
        services["jaeger"]["image"] == observed,
        f"compose runs {services['jaeger']['image']}, deploy/compose.yaml {observed}",
    )
    # The same etcd here and in the chart for trials.
    chart = yaml.safe_load((ROOT / "helm/trawl/values.yaml").read_text())["etcd"]["trial"]["image"]
    check(services["etcd"]["image"] == chart, f"compose runs {services['etcd']['image']}, the chart {chart}")
    for script in ("deploy/cluster/smoke", "deploy/images/build"):
        read = run("bash", "-n", script)
        check(read.returncode == 0 and os.access(ROOT / script, os.X_OK), f"{script}: {read.stderr}")
    return f"{len(services)} services"


summaries = [part() for part in (dockerfile, bill_of_materials, build_script, images_of_archives, pins, compose)]
for problem in problems:
    print(f"- {problem}", file=sys.stderr)
print(f"{'; '.join(summaries)}; {len(problems)} problems")
sys.exit(1 if problems else 0)
