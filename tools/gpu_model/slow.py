"""Functions that take longer alone than their bars take to read: the table of docs/gpu.md."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "observability"))
import claims

# The command that writes the table.
COMMAND = "just gpu-model-bless"
# A function that takes longer than so many times what its bars take to read is listed.
TIMES_MEMORY_MAX = 3.0


def slow(found):
    """Those functions, the slowest first, and how many there are in all. Of each: name, ms of all of its kernels, times its memory time,
    cycles a bar of the slowest kernel's path."""
    plans = {}
    for name, figure in found.items():
        plan, _ = name.rsplit(".", 1)
        if plan.startswith("only_"):
            plans.setdefault(plan.removeprefix("only_"), []).append(figure)
    rows = []
    for name, figures in plans.items():
        ms, memory_ms = sum(f["ms"] for f in figures), max(f["memory_ms"] for f in figures)
        if ms > TIMES_MEMORY_MAX * memory_ms:
            rows.append((name, ms, ms / memory_ms, max(f["cycles"] for f in figures)))
    return sorted(rows, key=lambda row: -row[2]), len(plans)


def text(found):
    rows, functions = slow(found)
    cells = [(f"`{name}`", f"{ms:.3g} ms modelled", f"{times:.1f} modelled", f"{cycles:.0f} modelled") for name, ms, times, cycles in rows]
    head = ("function", "last bar", "times its memory time", "cycles a bar")
    return f"{len(rows)} of {functions} functions:\n\n" + claims.table(head, cells)


def write(page, found):
    claims.show(page, COMMAND, text(found))


def differs(page, known):
    """What is wrong with the page, as lines: its table is that of the kept figures."""
    if claims.shown(page, COMMAND).strip() == text(known).strip():
        return []
    return [f"{page.name} has another table of functions than the kept figures: {COMMAND}"]
