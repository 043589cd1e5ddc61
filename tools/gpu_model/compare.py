"""Figures as a table, against those that were kept, and against times on a device."""

import json

# How much a figure may grow without being blessed, and what is too little to matter.
GROWTH_MAX = 1.10
LITTLE = 4

# Upper end of the error of a kernel that was never measured, assumed: constants were set by some of the measured ones.
UNMEASURED = 1.25

# Figures that may not grow, and counts that may only fall.
GROWING = ("ms", "cycles", "code_bytes", "hot_bytes", "registers", "shared_bytes")
PART_GROWING = ("cycles", "instructions", "f64", "tail_cycles")
FALLING = ("generic", "local")

# What no machine code may have, and why.
FORBIDDEN = {
    "spilled_bytes": "bytes of registers are spilled",
    "contractions": "DFMA that are neither a division, a square root nor a product with its error",
    "wrong_outputs": "outputs of the walked code are not the CPU's to the bit",
    "doubles": "instructions of f64 in a kernel of f32 without wide steps",
}


def write(path, found):
    """One plan a line, so that a difference shows the plans that changed."""
    lines = [f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def broken_rules(found):
    return [f"{name}: {figure[rule]} {why}" for name, figure in found.items() for rule, why in FORBIDDEN.items() if figure.get(rule)]


def _grew(before, now, name):
    if name == "ms":
        return now > before * GROWTH_MAX
    return now > before * GROWTH_MAX and now - before >= LITTLE


def grown(known, found, whole):
    """What has grown, is new or, of the whole table, is no longer there."""
    lines = []
    for plan, now in found.items():
        before = known.get(plan)
        if before is None:
            lines.append(f"{plan}: not among the kept figures; bless it")
            continue
        lines += [f"{plan}: {name} grew from {before[name]} to {now[name]}" for name in GROWING if _grew(before[name], now[name], name)]
        lines += [f"{plan}: {name} accesses a bar rose from {before[name]} to {now[name]}" for name in FALLING if now[name] > before[name]]
        if len(before["parts"]) != len(now["parts"]):
            lines.append(f"{plan}: {len(now['parts'])} parts, were {len(before['parts'])}; bless it")
            continue
        for number, (old, new) in enumerate(zip(before["parts"], now["parts"], strict=True)):
            lines += [f"{plan}: part {number}: {name} a bar grew from {old[name]} to {new[name]}"
                      for name in PART_GROWING if _grew(old[name], new[name], name)]  # fmt: skip
    if whole:
        lines += [f"{plan}: kept, but there is no such plan; bless it" for plan in known if plan not in found]
    return lines


def with_modelled(measured, now):
    """The measured cases with what is modelled for them: anew where the kernel is the one that was measured."""
    return [{**case, "modelled_ms": round(now.get(case["name"], case["modelled_ms"] or 0.0), 3)} for case in measured]


def write_measured(path, cases):
    path.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


def upper_error(cases):
    """How many times as long as modelled a kernel may take: what the measured cases took at most, or what is assumed of
    kernels that were never measured."""
    return max([UNMEASURED, *(case["measured_ms"] / case["modelled_ms"] for case in cases if case["modelled_ms"])])


def print_table(found, detailed, device, symbols, bars, error):
    """One line a launch. `error`: how many times the modelled time the measured one may be, beside each estimate."""
    print(f"{device.name}, {symbols} symbols x {bars} bars, the last bar unless named otherwise; cycles are of a bar")
    for name, figure in found.items():
        tail = max(part["tail_cycles"] for part in figure["parts"])
        print(f"{name.removesuffix('.0'):<24} {figure['ms']} ms modelled (up to {figure['ms'] * error:.3g}) | {figure['cycles']} cycles modelled | "
              f"tail {tail} cycles modelled | {figure['registers']} registers | {figure['shared_bytes']} bytes shared | "
              f"{figure['resident_blocks']} blocks resident, {figure['waves']} waves | {figure['hot_bytes']} of {figure['code_bytes']} bytes of code hot | "
              f"{figure['generic']} generic, {figure['local']} local accesses")  # fmt: skip
        if name.split(".")[0] in detailed:
            for number, part in enumerate(figure["parts"]):
                print(f"    part {number}: {part['cycles']} cycles modelled ({part['fetch_cycles']} modelled of them fetch), tail "
                      f"{part['tail_cycles']} modelled; {part['instructions']} instructions, {part['f64']} f64, "
                      f"{part['shared_bytes']} bytes of shared memory")  # fmt: skip


def print_one_bar(found, error):
    """What one new bar of every symbol takes from states that stay on the device."""
    for name, figure in found.items():
        if "kernel_us" in figure:
            parts = {key.removesuffix("_us"): figure[key] for key in ("launch_us", "bars_us", "kernel_us", "values_us")}
            text = ", ".join(f"{key} {us}" for key, us in parts.items())
            print(f"{name.removesuffix('.0')}: one new bar of every symbol: {sum(parts.values()):.3g} us modelled ({text} us modelled; "
                  f"kernel up to {figure['kernel_us'] * error:.3g})")  # fmt: skip


def print_errors(cases, now):
    """Modelled against measured, for kernels that are still those that were measured and for those that were."""
    for case in cases:
        kept = "" if case["name"] in now else "  (the kernel that was measured; its text has changed since)"
        ratio = case["modelled_ms"] / case["measured_ms"]
        print(f"{case['name']:<40} {case['measured_ms']:>7} ms measured {case['modelled_ms']:>7} ms modelled {ratio:>6.2f} of it modelled{kept}")
    print(f"upper end of the error: a modelled time x {upper_error(cases):.2f}")
