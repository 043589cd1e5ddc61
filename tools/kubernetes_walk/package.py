"""The chart as a package in a registry of OCI artifacts: pushed, pulled, rendered, upgraded to."""

import re
import socket
from pathlib import Path

from network import GATEWAY
from processes import wait_for
from stage import CHART

PAGE = "docs/kubernetes/air-gapped.md"
PORT = 5000


def package(stage):
    kubernetes, claim = stage.kubernetes, stage.claims.add
    config = stage.folder / "registry.yml"
    config.write_text(f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {stage.folder}/registry}}}}\nhttp: {{addr: '{GATEWAY}:{PORT}'}}\n")
    kubernetes.start_process("registry", [kubernetes.programs["registry"], "serve", config], OTEL_TRACES_EXPORTER="none")
    made = stage.helm("package", CHART, "--destination", stage.folder)
    path = re.search(r"saved it to: (\S+)", made)[1]
    version = re.fullmatch(r"trawl-(.+)\.tgz", Path(path).name)[1]
    with open(path, "rb") as packed:
        kib = len(packed.read()) / 1024
    at = f"oci://{GATEWAY}:{PORT}/charts"
    wait_for("the registry listens", listens, 30)
    pushed = kubernetes.ran("helm", "push", path, at, "--plain-http")
    digest = re.search(r"sha256:[0-9a-f]{64}", pushed.stdout + pushed.stderr)
    claim(
        PAGE,
        "`helm package` and `helm push` put the chart into a registry",
        f"trawl-{version}.tgz, {kib:.0f} KiB; {digest[0][:19]}..." if digest else (pushed.stdout + pushed.stderr)[-200:],
        pushed.returncode == 0 and digest,
    )
    of = lambda chart, *more: stage.helm("template", "trawl", chart, "--values", stage.values, *more)
    here, there = of(CHART), of(f"{at}/trawl", "--version", version, "--plain-http")
    claim(PAGE, "what it renders is what the folder renders", f"{len(there.splitlines())} lines", plain(here) == plain(there))
    stage.helm("pull", f"{at}/trawl", "--version", version, "--plain-http", "--untar", "--untardir", stage.folder / "pulled")
    pulled = stage.folder / "pulled/trawl"
    same = [path.name for path in sorted((CHART / "ci").glob("*.yaml")) if rendered(stage, pulled, path.name) == rendered(stage, CHART, path.name)]
    claim(
        PAGE,
        "`helm pull --untar` brings the sets of values in `ci/`, the trial's among them",
        f"{len(same)} render as in the folder: {', '.join(same)}",
        "trial-values.yaml" in same and len(same) == len(list((CHART / "ci").glob("*.yaml"))),
    )
    said = stage.helm("upgrade", "trawl", f"{at}/trawl", "--version", version, "--plain-http", "--values", stage.values, "--wait", "--timeout", "180s")
    answer = stage.scan()
    claim(
        PAGE,
        "a release is upgraded to the chart in the registry",
        f"{re.search(r'STATUS: (.*)', said)[1]}; a scan has {'the same bytes' if answer.stdout == stage.expected else 'other bytes'}",
        answer.stdout == stage.expected,
    )


def rendered(stage, chart, values):
    """A chart with values of its own, or nothing where it has none of that name."""
    path = chart / "ci" / values
    return stage.helm("template", "trawl", chart, "--values", path) if path.exists() else None


def listens():
    with socket.socket() as to:
        return to.connect_ex((GATEWAY, PORT)) == 0


def plain(text):
    """Rendered objects without the lines that helm prints about pulling."""
    return "\n".join(line for line in text.splitlines() if not line.startswith(("Pulled:", "Digest:")))
