"""Two other ways to compute W1 and Adaptive Trend Classification on a GPU, timed and compared with Trawl's values.

    gpu_peers.py DUMP [--report FILE] [--repeats N] [--peers cupy,numba]

DUMP is a folder that `trawl bench gpu --dump DUMP` wrote: bars, and Trawl's outputs on every bar. gpu_peers_arrays.py is what one would write
with CuPy (whole arrays, loops over time where a value needs the one before), gpu_peers_kernels.py kernels of numba.cuda. Both start from
columns that are on the device as [bar, symbol], which suits them best; laying them out is not measured. Times are those of CUDA events around
all kernels of a plan, median after runs that are not counted, as Trawl's are. A peer that is not installed is reported as absent.

Without a GPU: --peers numpy runs the arrays on NumPy, and NUMBA_ENABLE_CUDASIM=1 the kernels in Python. Their times are reported as
simulated and mean nothing.
"""

import argparse
import importlib
import json
import os
import pathlib
import statistics
import sys
import time
import traceback

import numpy

import gpu_peers_arrays as arrays

COLUMNS = ("open", "high", "low", "close", "volume")
WARM_UPS = 2
RELATIVE = 1e-9
# Symbols of a block of the classification, and threads of the others. In the simulator every thread is one of Python's.
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
LANES = 4 if SIMULATED else 32
THREADS = 4 if SIMULATED else 64


class Dump:
    """Bars and Trawl's outputs, as they were written: [series, symbol, bar]."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.facts = json.loads((self.folder / "dump.json").read_text())
        self.symbols, self.bars = self.facts["symbols"], self.facts["bars"]

    def read(self, part):
        return numpy.memmap(self.folder / part["file"], dtype="<f8", mode="r", shape=tuple(part["shape"]))

    def columns(self):
        """Each column as [bar, symbol]."""
        inputs = self.facts["inputs"]
        series = dict(zip(inputs["names"], self.read(inputs)))
        return [numpy.ascontiguousarray(series[name].T) for name in COLUMNS]


def compared(xp, dump, plan, values):
    """How many cells of `values`, [output, bar, symbol], differ from Trawl's."""
    part = dump.facts["plans"][plan]
    total = {"cells": 0, "different_bits": 0, "beyond_1e_9": 0, "missing_in_one": 0, "outputs": {}}
    last_bar_beyond = 0
    for name, ours, theirs in zip(part["names"], dump.read(part), values):
        ours = xp.ascontiguousarray(xp.asarray(ours).T)
        missing = xp.isnan(ours) != xp.isnan(theirs)
        different = (ours != theirs) & ~(xp.isnan(ours) & xp.isnan(theirs))
        distance = xp.where(different & ~missing, xp.abs(ours - theirs), 0.0)
        beyond = missing | (distance > RELATIVE * xp.maximum(xp.abs(ours), xp.abs(theirs)))
        scale = float(xp.nanmax(xp.abs(ours)))
        last_bar_beyond += int(beyond[-1].sum())
        counts = {
            "different_bits": int(different.sum()),
            "beyond_1e_9": int(beyond.sum()),
            "missing_in_one": int(missing.sum()),
        }
        total["cells"] += ours.size
        for key, count in counts.items():
            total[key] += count
        total["outputs"][name] = {**counts, "largest_of_scale": float(distance.max()) / scale if scale > 0 else 0.0}
    total["beyond_1e_9_at_the_last_bar"] = last_bar_beyond
    return total


def figures(times):
    return {"ms": min(times), "median_ms": statistics.median(times), "runs": len(times)}


def wall_times(run, repeats):
    """Without a device's clock."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        values = run()
        times.append((time.perf_counter() - begun) * 1e3)
    return values, times


def with_arrays(xp, dump, repeats, is_simulated):
    """The arrays on CuPy or NumPy."""

    def timed(run):
        if is_simulated:
            return wall_times(run, repeats)
        times = []
        for number in range(WARM_UPS + repeats):
            values = None  # Its memory is used again.
            first, last = xp.cuda.Event(), xp.cuda.Event()
            first.record()
            values = run()
            last.record()
            last.synchronize()
            if number >= WARM_UPS:
                times.append(xp.cuda.get_elapsed_time(first, last))
        return values, times

    columns = [xp.asarray(column) for column in dump.columns()]
    values, times = timed(lambda: arrays.w1(xp, columns))
    report = {"w1": {"all_bars": figures(times), "compared": compared(xp, dump, "w1", values)}}
    del values
    values, times = timed(lambda: arrays.atc(xp, columns[3]))
    report["atc"] = {"all_bars": figures(times), "compared": compared(xp, dump, "atc", values[None])}
    return report


def with_kernels(dump, repeats):
    """The kernels of numba.cuda."""
    from numba import cuda

    import gpu_peers_kernels as kernels

    try:
        xp = None if SIMULATED else importlib.import_module("cupy")
    except ImportError:
        xp = None

    def read(array):
        return numpy.asarray(array.copy_to_host()) if xp is None else xp.asarray(array)

    def timed(run):
        if SIMULATED:
            return wall_times(run, 1)[1]
        times = []
        for number in range(WARM_UPS + repeats):
            first, last = cuda.event(timing=True), cuda.event(timing=True)
            first.record()
            run()
            last.record()
            last.synchronize()
            if number >= WARM_UPS:
                times.append(cuda.event_elapsed_time(first, last))
        return times

    symbols, bars = dump.symbols, dump.bars
    opened, high, low, close, volume = (cuda.to_device(column) for column in dump.columns())
    del opened
    growth = cuda.to_device(numpy.array(arrays.growth(bars)))
    lengths = cuda.to_device(numpy.array(arrays.LENGTHS, dtype=numpy.int32))
    report = {"w1": {}, "atc": {}}
    for name, all_bars in (("last_bar", False), ("all_bars", True)):
        rows = bars if all_bars else 1
        screen = kernels.w1(all_bars)
        out = cuda.device_array((kernels.OUTPUTS, rows, symbols))
        report["w1"][name] = figures(
            timed(lambda: screen[-(-symbols // THREADS), THREADS](high, low, close, volume, out))
        )
        if all_bars:
            report["w1"]["compared"] = compared(xp or numpy, dump, "w1", read(out))
        del out
        families = [kernels.family(which, all_bars, LANES) for which in range(arrays.FAMILIES)]
        votes = cuda.device_array((arrays.FAMILIES, rows, symbols))
        wholes = cuda.device_array((arrays.FAMILIES, rows, symbols))
        signal = cuda.device_array((rows, symbols))

        def classify():
            for family in families:
                family[-(-symbols // LANES), (LANES, kernels.MEMBERS)](close, growth, lengths, votes, wholes)
            kernels.combine[-(-rows * symbols // THREADS), THREADS](votes, wholes, signal)

        report["atc"][name] = figures(timed(classify))
        if all_bars:
            report["atc"]["compared"] = compared(xp or numpy, dump, "atc", read(signal)[None])
    return report


def version(name):
    try:
        return importlib.import_module(name).__version__
    except Exception as error:  # A library that cannot be loaded is absent, whatever the reason.
        return f"absent: {error}"


def run(peer, dump, repeats):
    begun = time.perf_counter()
    try:
        if peer == "numba":
            report = {"simulated": SIMULATED, "version": version("numba"), "numba_cuda": version("numba_cuda")}
            report |= with_kernels(dump, repeats)
        else:
            simulated = peer == "numpy"
            xp = importlib.import_module(peer)
            report = {"simulated": simulated, "version": xp.__version__}
            report |= with_arrays(xp, dump, 1 if simulated else repeats, simulated)
        report["ending"] = "done"
    except ImportError as error:
        report = {"ending": "absent", "why": str(error)}
    except Exception:  # One peer that fails must not take the other's figures with it.
        report = {"ending": "failed", "why": traceback.format_exc(limit=4)}
    return report | {"seconds": time.perf_counter() - begun}


def line(peer, report):
    if report["ending"] != "done":
        return f"{peer}: {report['ending']}: {report['why'].strip().splitlines()[-1]}"
    words = []
    for plan in ("w1", "atc"):
        for bars in ("last_bar", "all_bars"):
            if bars in report[plan]:
                words.append(f"{plan} {bars} {report[plan][bars]['median_ms']:.3f} ms")
        counts = report[plan]["compared"]
        words.append(f"{plan}: {counts['beyond_1e_9']} of {counts['cells']} cells beyond 1e-9, {counts['different_bits']} in bits")
    return f"{peer}: " + "; ".join(words)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", type=pathlib.Path)
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--peers", default="numba,cupy")
    args = parser.parse_args()
    dump = Dump(args.dump)
    report = {"benchmark": "gpu_peers", "symbols": dump.symbols, "bars": dump.bars, "backend": dump.facts["backend"], "peers": {}}
    numpy.seterr(all="ignore")
    for peer in args.peers.split(","):
        report["peers"][peer] = run(peer, dump, args.repeats)
        print(line(peer, report["peers"][peer]), flush=True)
        if args.report:
            args.report.write_text(json.dumps(report, indent=2) + "\n")
    return 0 if all(part["ending"] != "failed" for part in report["peers"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
