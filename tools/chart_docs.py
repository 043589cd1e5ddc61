#!/usr/bin/env python3
"""Writes helm/trawl/README.md from the comments of values.yaml, and docs/kubernetes/configuration.md from the program's
help texts. `just chart-docs` runs it; a test compares.

    chart_docs.py --trawl TRAWL
"""

import argparse
import pathlib
import re
import subprocess

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
CHART = ROOT / "helm/trawl"
# Most characters of a default in a table.
DEFAULT_CHARACTERS_MAX = 60


# Options of the program


def options(trawl, command):
    """{long name: (description, default)} of a command, from its --help."""
    help_text = subprocess.run(
        [trawl, command, "--help"], capture_output=True, text=True, env={"COLUMNS": "110"}, check=True
    )
    found = {}
    for line in help_text.stdout.splitlines():
        if head := re.match(r"  (?:-\w, |    )--([a-z0-9-]+)(?: <\S+>)?\s*(.*)$", line):
            name = head[1]
            found[name] = [head[2]] if head[2] else []
        elif re.match(r" {10,}\S", line) and found:
            found[name].append(line.strip())
        elif not line.startswith(" "):
            name = "ended"
            found.setdefault(name, [])
    found.pop("ended", None)
    found.pop("help", None)
    texts = {name: " ".join(lines) for name, lines in found.items()}
    return {
        name: (re.sub(r"\s*\[default: .*\]$", "", t), (re.findall(r"\[default: (.*)\]$", t) or [""])[0])
        for name, t in texts.items()
    }


# Options that the chart sets by other values; everything else is a key of coordinator.config or worker.config.
WIRED = {
    "data-root": "data.kind",
    "data-cache": "data.bucket (the volume)",
    "data-cache-bytes": "data.bucket.cacheBytes",
    "etcd": "etcd.endpoints",
    "etcd-ca": "etcd.tls.caSecret",
    "etcd-cert": "etcd.tls",
    "etcd-key": "etcd.tls",
    "cluster-name": "clusterName",
    "health": "(port 9465)",
    "listen": "ipv6",
    "advertise": "(the pod's address)",
    "id": "(the pod's name)",
    "metrics": "metrics.enabled",
    "insecure": "tls.mode",
    "tls-ca": "tls.mode",
    "tls-cert": "tls.mode",
    "tls-key": "tls.mode",
    "tokens": "tokens.existingSecret",
    "results": "results.kind",
    "results-shared": "results.kind",
    "spool": "(/tmp of the pod)",
    "config": "coordinator.config, worker.config",
    "http": "coordinator.http.enabled",
}


def variable(option):
    return "TRAWL_ETCD_ENDPOINTS" if option == "etcd" else "TRAWL_" + option.upper().replace("-", "_")


def camel(option):
    head, *rest = option.split("-")
    return head + "".join(word.capitalize() for word in rest)


def key_page(trawl):
    """docs/kubernetes/configuration.md."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    lines = [
        "# Configuration",
        "",
        "<!-- Written from `trawl coordinator --help`, `trawl worker --help` and the chart by `just chart-docs`; a test compares. -->",
        "",
        "Every option of the program, the variable that sets it too, and the chart's value that it follows from. All other values are",
        "in [the chart's README](../../helm/trawl/README.md).",
    ]
    for command in ("coordinator", "worker"):
        config = values[command]["config"]
        lines += [
            "",
            f"## trawl {command}",
            "",
            "| option | variable | value | default | meaning |",
            "|---|---|---|---|---|",
        ]
        for option, (meaning, default) in sorted(options(trawl, command).items()):
            key = WIRED.get(option, f"{command}.config.{camel(option)}")
            own = config.get(camel(option)) if option not in WIRED else None
            default = (
                f"{own} (the program's: {default or 'none'})" if own is not None and str(own) != default else default
            )
            shown = key if key.startswith("(") else f"`{key}`"
            meaning, default = meaning.replace("|", "\\|"), default.replace("|", "\\|")
            lines.append(f"| `--{option}` | `{variable(option)}` | {shown} | {default} | {meaning} |")
    return "\n".join(lines) + "\n"


def described_values():
    """[(section, [(key, default, description)])] of values.yaml, in its order; every leaf has a description or is part of one."""
    sections, path, about = [], [], []
    for number, line in enumerate((CHART / "values.yaml").read_text().splitlines(), 1):
        if not line.strip():
            about = []
            continue
        if comment := re.match(r"\s*#\s?(.*)$", line):
            if comment[1].startswith("-- "):
                about = [comment[1][3:]]
            elif about:
                about.append(comment[1])
            continue
        entry = re.match(r"( *)([\w-]+):(.*)$", line)
        if not entry:
            continue
        depth, key = len(entry[1]) // 2, entry[2]
        # Part of a value that is described as a whole.
        if any(described for _, described in path[:depth]):
            continue
        path = path[:depth] + [(key, " ".join(about) if about else None)]
        if depth == 0:
            sections.append((key, []))
        if about:
            sections[-1][1].append((".".join(k for k, _ in path), " ".join(about)))
        elif entry[3].strip():
            raise SystemExit(f"values.yaml:{number}: '{key}' has no description: write '# -- ...' above it")
        about = []
    return sections


def value_at(values, path):
    for key in path.split("."):
        values = values[key]
    return values


def shown(value):
    """A default, as a cell."""
    text = (
        yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("\n...\n").strip()
        if value not in ("", None)
        else ""
    )
    text = text if len(text) <= DEFAULT_CHARACTERS_MAX else "see `values.yaml`"
    return f"`{text}`" if text and not text.startswith("see ") else text


def readme():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    lines = [
        (CHART / "README.head.md")
        .read_text()
        .replace("VERSION", chart["version"])
        .replace("KUBERNETES", chart["kubeVersion"].removesuffix("-0"))
        .rstrip(),
        "",
    ]
    plain = []
    sections = described_values()
    for name, entries in sections:
        if len(entries) == 1 and entries[0][0] == name:
            plain.append(entries[0])
    listed = [("General", plain)] + [(f"`{n}`", e) for n, e in sections if not (len(e) == 1 and e[0][0] == n)]
    for title, entries in listed:
        lines += [f"### {title}", "", "| value | default | meaning |", "|---|---|---|"]
        for key, about in entries:
            lines.append(
                f"| `{key}` | {shown(value_at(values, key)).replace('|', chr(92) + '|')} | {about.replace('|', chr(92) + '|')} |"
            )
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def written(trawl):
    """{path in the repository: text}"""
    return {"helm/trawl/README.md": readme(), "docs/kubernetes/configuration.md": key_page(trawl)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trawl", required=True, help="the executable whose options are described")
    for path, text in written(parser.parse_args().trawl).items():
        (ROOT / path).write_text(text)
        print(path)


if __name__ == "__main__":
    main()
