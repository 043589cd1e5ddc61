#!/usr/bin/env python3
"""The import graph inside each crate: files, arrows, floors, arrows back up, circles.

A file depends on another when it names it in a path: `use crate::a::b`, `super::b`, or `b::Item` where `b` is a child module or
was imported. Declarations of modules, re-exports, tests, and what a file takes from the file of its own folder are no arrows. A circle is a set of
files that depend on one another; its floor is one. `--circles` lists them; `--check N` fails when there are more than N.
"""

import argparse
import pathlib
import re
import sys

CRATES = ["plan", "market", "kernels", "protocol/wire", "protocol/objects", "protocol/security", "protocol/cluster-store", "telemetry", "worker", "coordinator", "front", "bench", "cli", "testing"]
ROOT = pathlib.Path(__file__).resolve().parent.parent


def without_noise(text):
    """The source without comments, strings and test modules."""
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text, flags=re.S)
    found = re.search(r"#\[cfg\(test\)\]\s*mod \w+ \{", text)
    return text[: found.start()] if found else text


def leaves(tree):
    """The paths of a `use` tree: `a::{b, c::d}` -> a::b, a::c::d."""
    tree = tree.strip()
    opening = tree.find("{")
    if opening < 0:
        return [re.sub(r"\s+as\s+\w+$", "", tree)]
    prefix, inner = tree[:opening], tree[opening + 1 : tree.rindex("}")]
    parts, depth, start = [], 0, 0
    for at, sign in enumerate(inner):
        depth += (sign == "{") - (sign == "}")
        if sign == "," and depth == 0:
            parts.append(inner[start:at])
            start = at + 1
    parts.append(inner[start:])
    return [prefix + leaf for part in parts if part.strip() for leaf in leaves(part)]


def graph(crate):
    source = ROOT / crate / "src"
    modules = {}
    for path in source.rglob("*.rs"):
        parts = list(path.relative_to(source).with_suffix("").parts)
        if parts[-1] in ("mod", "lib", "main"):
            parts.pop()
        if parts and (parts[-1].endswith("tests") or parts[-1] in ("testing", "agreement", "golden", "cuts")):
            continue
        if parts[:1] == ["bin"]:
            continue
        modules[tuple(parts)] = path
    texts = {module: without_noise(path.read_text()) for module, path in modules.items()}
    # What a module re-exports: name -> the module that defines it.
    exports = {module: {} for module in modules}
    for module, text in texts.items():
        for tree in re.findall(r"\bpub(?:\([^)]*\))?\s+use\s+([^;]+);", text):
            for leaf in leaves(tree):
                parts = [p for p in leaf.strip().split("::") if p]
                if parts and parts[0] in ("self", "crate", "super") or (parts and module + (parts[0],) in modules):
                    target = resolve(module, parts, modules, {})
                    if target is not None:
                        exports[module][parts[-1]] = target
    arrows = {module: set() for module in modules}
    for module, text in texts.items():
        text = re.sub(r"\bpub(?:\([^)]*\))?\s+use\s+[^;]+;", "", text)
        found = []
        for tree in re.findall(r"\buse\s+([^;]+);", text):
            found += [leaf.strip().split("::") for leaf in leaves(tree)]
        body = re.sub(r"\buse\s+[^;]+;", "", text)
        found += [path.split("::") for path in re.findall(r"(?<![\w:])((?:crate|super|self|[a-z_]\w*)(?:::\w+)+)", body)]
        for parts in found:
            target = resolve(module, [p for p in parts if p], modules, exports)
            # What a folder's own file defines is the vocabulary of the files inside: no arrow.
            if target is not None and target != module[: len(target)]:
                arrows[module].add(target)
    return modules, arrows


def resolve(module, parts, modules, exports):
    """The module that a path names, through re-exports."""
    parts = list(parts)
    if not parts:
        return None
    if parts[0] == "crate":
        at = ()
        parts = parts[1:]
    elif parts[0] in ("super", "self"):
        at = module
        while parts and parts[0] in ("super", "self"):
            at = at[:-1] if parts[0] == "super" else at
            parts = parts[1:]
    elif module + (parts[0],) in modules:
        at = module
    else:
        return None
    if at not in modules and at != ():
        return None
    while parts:
        if at + (parts[0],) in modules:
            at = at + (parts[0],)
            parts = parts[1:]
            continue
        target = exports.get(at, {}).get(parts[0]) or exports.get(at, {}).get("*")
        if target is not None and target != at:
            return target
        break
    return at if at in modules else None


def circles(arrows):
    """Strongly connected sets of more than one file (Tarjan)."""
    index, low, stack, on, out = {}, {}, [], set(), []
    sys.setrecursionlimit(10_000)

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on.add(node)
        for other in arrows[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            found = []
            while True:
                other = stack.pop()
                on.discard(other)
                found.append(other)
                if other == node:
                    break
            out.append(found)

    for node in arrows:
        if node not in index:
            visit(node)
    return out


def floors(arrows, components):
    """How many floors the components stand on, and each one's."""
    of = {module: number for number, found in enumerate(components) for module in found}
    level = {}

    def floor(number):
        if number not in level:
            below = {of[other] for module in components[number] for other in arrows[module]} - {number}
            level[number] = 1 + max((floor(other) for other in below), default=0)
        return level[number]

    return max((floor(number) for number in range(len(components))), default=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--circles", action="store_true", help="list the circles")
    parser.add_argument("--check", type=int, metavar="N", help="fail when there are more than N circles")
    args = parser.parse_args()
    total = 0
    print(f"{'crate':24} {'files':>6} {'arrows':>7} {'floors':>7} {'circles':>8}")
    for crate in CRATES:
        if not (ROOT / crate / "src").is_dir():
            continue
        modules, arrows = graph(crate)
        components = circles(arrows)
        rings = [sorted(found) for found in components if len(found) > 1]
        total += len(rings)
        count = sum(len(targets) for targets in arrows.values())
        print(f"{crate:24} {len(modules):6} {count:7} {floors(arrows, components):7} {len(rings):8}")
        if args.circles:
            for ring in rings:
                print("    " + ", ".join("::".join(module) or "(root)" for module in ring))
    print(f"{total} circles")
    return 1 if args.check is not None and total > args.check else 0


if __name__ == "__main__":
    sys.exit(main())
