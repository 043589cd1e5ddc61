"""Cycles, instructions and bytes a bar of generated kernels, from their machine code: a table, and what is kept of it.

    python tools/gpu_model FOLDER [--architecture 90] [--known FILE [--bless]] [--measured FILE] [--page FILE] [--plans NAME...]

FOLDER is what the test `the_static_model_of_machine_code` of trawl-kernels writes. Exits with 1 where a figure has grown,
code holds what it must not, or a launch cannot be modelled, and with 77 where nvdisasm is missing.
"""

import argparse
import glob
import json
import multiprocessing
import os
import shutil
import sys
import sysconfig
from pathlib import Path

import block
import compare
import figures
import sass
import slow

SKIPPED = 77

# The market that estimates are for, and of plans that the measurements are of.
SYMBOLS = 10_000
BARS = 2_000
LONG_BARS = 1_000_000

# Plans whose parts are printed one by one.
DETAILED = ("w1", "w1_every_bar", "atc", "long", "w1_f32", "w1_every_bar_f32", "atc_f32", "w1_one_bar", "w1_one_bar_blocks")


def find_nvdisasm():
    """The wheel's, else that of the toolkit."""
    found = glob.glob(os.path.join(sysconfig.get_path("purelib"), "nvidia", "*", "bin", "nvdisasm"))
    return found[0] if found else shutil.which("nvdisasm")


def of_plan(launches):
    """Without those over narrow chunks, which only show what a map costs."""
    return [launch for launch in launches if "maps_of" not in launch]


def modelled_file(task):
    """Of the plans whose kernels are in one CUBIN; see `modelled`."""
    name, plans, folder, architecture, device, nvdisasm = task
    found, wrong, times = {}, [], {}
    try:
        functions = sass.read(nvdisasm, folder / f"{name}.cubin")
    except sass.SassError as e:
        return found, [str(e)], times
    for launches, cases in plans:
        figure, problems, ms = modelled(launches, functions, folder, architecture, device, cases)
        found.update(figure)
        wrong += problems
        times.update(ms)
    return found, wrong, times


def modelled(launches, functions, folder, architecture, device, cases):
    """Of the launches of a plan: figures by name, what went wrong, and times by case, the plan's own under its name."""
    found, made, calls, narrow = {}, {}, [], {}
    for launch in launches:
        of_maps = launch.get("maps_of")
        if of_maps is not None and not calls[of_maps][-1].reads_maps:
            continue
        try:
            # What narrow chunks read is in their memory already.
            earlier = made if of_maps is None else None
            walks = block.walk(launch, functions[launch["kernel"]], folder, architecture, earlier, device.units)
        except (sass.SassError, ValueError, IndexError, KeyError) as e:
            return found, [f"{launch['name']}: cannot be modelled: {type(e).__name__}: {e}"], {}
        if of_maps is None:
            calls.append(walks)
        else:
            narrow[calls[of_maps][0].launch["name"]] = walks
    launches = of_plan(launches)

    def milliseconds(walks, symbols, bars):
        if len(walks) > 1:
            of_maps = narrow.get(walks[0].launch["name"])
            return figures.chunk_milliseconds(walks, device, figures.chunks_of(bars), of_maps)
        return figures.milliseconds(walks[0], device, symbols, bars)

    chunked = len(calls[0]) > 1
    symbols, bars = (1, LONG_BARS) if chunked else (SYMBOLS, 1 if calls[0][0].is_one_bar else BARS)
    lanes = figures.chunks_of(bars) if chunked else symbols
    for launch, walks in zip(launches, calls, strict=True):
        found[launch["name"]] = figures.figures(walks[-1], device, milliseconds(walks, symbols, bars), lanes, figures.CHUNK_BARS if chunked else bars)
    markets = [{"name": launches[0]["plan"], "symbols": symbols, "bars": bars}, *cases]
    times = {m["name"]: sum(milliseconds(walks, m["symbols"], m["bars"]) for walks in calls) for m in markets}
    return found, [], times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--architecture", type=int, default=90, choices=sorted(figures.DEVICES))
    parser.add_argument("--known", type=Path, help="figures that may not grow")
    parser.add_argument("--bless", action="store_true", help="write the figures there")
    parser.add_argument("--measured", type=Path, help="times on a device, to state the error by")
    parser.add_argument("--page", type=Path, help="page with the table of slow functions")
    parser.add_argument("--plans", nargs="*", help="only these")
    options = parser.parse_args()
    nvdisasm = find_nvdisasm()
    if nvdisasm is None:
        print("gpu_model: SKIPPED: no nvdisasm (wheel nvidia-cuda-nvdisasm); machine code was NOT looked at", file=sys.stderr)
        return SKIPPED
    measured = json.loads(options.measured.read_text()) if options.measured else []
    plans = {}
    for launch in block.launches(options.folder):
        if not options.plans or launch["plan"] in options.plans:
            plans.setdefault(launch["plan"], []).append(launch)
    files = {}
    for plan, launches in plans.items():
        names = [launch["kernel"] for launch in of_plan(launches)]
        cases = [case for case in measured if case["plan"] == plan and case["kernels"] == names]
        files.setdefault(launches[0]["code"], []).append((launches, cases))
    wrong = []
    for device in figures.DEVICES[options.architecture]:
        found, times = {}, {}
        tasks = [(name, of_file, options.folder, options.architecture, device, nvdisasm) for name, of_file in files.items()]
        with multiprocessing.Pool(os.cpu_count()) as pool:
            for figure, problems, ms in pool.imap_unordered(modelled_file, tasks):
                found.update(figure)
                wrong += problems
                times.update(ms)
        found = dict(sorted(found.items()))
        cases = compare.with_modelled(measured, times)
        error = compare.upper_error(cases)
        compare.print_table(found, DETAILED, device, SYMBOLS, BARS, error)
        compare.print_one_bar(found, error)
        print("Longer than three times what the bars take to read, " + slow.text(found))
        for plan, launches in plans.items():
            if len(launches) > 1 and plan in times:
                print(f"{plan}: {len(of_plan(launches))} kernels, {times[plan]:.3g} ms modelled (up to {times[plan] * error:.3g})")
    if cases:
        compare.print_errors(cases, times)
    wrong += compare.broken_rules(found)
    if options.known and options.bless:
        compare.write(options.known, found)
        if options.page:
            slow.write(options.page, found)
        if cases:
            compare.write_measured(options.measured, cases)
    elif options.known:
        wrong += compare.grown(json.loads(options.known.read_text()), found, whole=not options.plans)
        if options.page:
            wrong += slow.differs(options.page, json.loads(options.known.read_text()))
    for line in wrong:
        print(f"gpu_model: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
