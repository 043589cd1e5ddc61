"""Functions that take longer alone than their bars take to read: the table of docs/gpu.md."""

BEGIN, END = "<!-- functions beyond their memory time: just gpu-model-bless -->", "<!-- end -->"

# A function that takes longer than so many times what its bars take to read is listed.
TIMES_MEMORY_MAX = 3.0


def slow(found):
    """Those functions, the slowest first: name, ms of all of its kernels, times its memory time, cycles a bar of the slowest one's path."""
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


def table(found):
    rows, functions = slow(found)
    lines = [f"{len(rows)} of {functions} functions:", "", "| function | last bar | times its memory time | cycles a bar |", "|---|---|---|---|"]
    return "\n".join(lines + [f"| `{name}` | {ms:.3g} ms modelled | {times:.1f} modelled | {cycles:.0f} modelled |" for name, ms, times, cycles in rows])


def write(page, found):
    before, rest = page.read_text().split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{table(found)}\n{END}{rest.split(END, 1)[1]}")


def differs(page, known):
    """What is wrong with the page, as lines: its table is that of the kept figures."""
    shown = page.read_text().split(BEGIN)[1].split(END, 1)[0].strip()
    return [] if shown == table(known) else [f"{page.name} has another table of functions than the kept figures: just gpu-model-bless"]
