#!/usr/bin/env python3
"""The packages linked into an executable, as CycloneDX 1.5: reads `cargo metadata` from standard input, writes JSON.

    cargo metadata --locked --format-version 1 --filter-platform TRIPLE | sbom.py --package trawl

The executable is stripped, so a scanner of images sees none of this by itself. Only what is linked counts: dependencies of builds
and tests are left out. The same input gives the same bytes.
"""

import argparse
import json
import sys


def linked(metadata, root):
    """Ids of the packages that `root` links, with the dependencies of each."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    needs, waiting = {}, [root]
    while waiting:
        package = waiting.pop()
        if package in needs:
            continue
        normal = [d["pkg"] for d in nodes[package]["deps"] if any(kind["kind"] is None for kind in d["dep_kinds"])]
        needs[package] = sorted(normal)
        waiting += normal
    return needs


def reference(package):
    """The name of a package within the document; independent of where it was built."""
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package):
    registry = (package["source"] or "").startswith("registry+")
    found = {
        "type": "library" if package["source"] else "application",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package) if registry else None,
        "licenses": [{"expression": package["license"].replace("/", " OR ")}] if package.get("license") else None,
    }
    return {key: value for key, value in found.items() if value}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--package", required=True, help="the package whose executable it is")
    name = parser.parse_args().package
    metadata = json.load(sys.stdin)
    packages = {package["id"]: package for package in metadata["packages"]}
    roots = [p for p in metadata["workspace_members"] if packages[p]["name"] == name]
    if not roots:
        sys.exit(f"sbom.py: the workspace has no package '{name}'")
    needs = linked(metadata, roots[0])
    ordered = sorted(needs, key=lambda p: (packages[p]["name"], packages[p]["version"]))
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(packages[roots[0]])},
        "components": [component(packages[p]) for p in ordered if p != roots[0]],
        "dependencies": [
            {"ref": reference(packages[p]), "dependsOn": [reference(packages[n]) for n in needs[p]]} for p in ordered
        ],
    }
    json.dump(bom, sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
