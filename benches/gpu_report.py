"""Merges what the steps of benches/gpu.sh measured into one report.

    gpu_report.py OUTPUT FIGURES [SANITIZER] [--peers FILE] [--clocks FILE] [--devices FILE] [--soak FILE] [--simulated]

FIGURES and SANITIZER are reports of `trawl bench gpu`: the sections of the second are added to those of the first. In every section
`figures` are measured values by name. Of a device that the static model is for, at the sizes that it is for, `modelled` has its value of the
same figure (kernels/tests/model/figures.json), and `measured_by_modelled` the ratio; a table of both is printed. The
peers' report (gpu_peers.py) becomes `peers`, the clocks (lines of nvidia-smi: MHz now, MHz at most) become `sm_clock_mhz`; what
`trawl bench devices` reports becomes `devices`, and `soak`. Simulated figures are refused without --simulated.
"""

import argparse
import json
import pathlib
import sys

MODEL = pathlib.Path(__file__).resolve().parents[1] / "kernels/tests/model/figures.json"
# What the model's figures are of, and its plans by section and figure. Lengths of a plan that is repeated are constants.
MODELLED = {"symbols": 10_000, "bars": 2_000, "long_bars": 1_000_000}
MODELLED_DEVICE = {"compute_capability": "9.0", "multiprocessors": 132}
PLANS = {
    "screen": {"w1_last_bar_ms": "w1", "w1_all_bars_ms": "w1_every_bar"},
    "screen-f32": {"w1_last_bar_ms": "w1_f32", "w1_all_bars_ms": "w1_every_bar_f32"},
    "atc": {"atc_last_bar_ms": "atc_lengths"},
    "atc-f32": {"atc_last_bar_ms": "atc_lengths_f32"},
    "long": {"w1_one_symbol_ms": "long"},
}
# A difference that is worth a look.
FAR = 1.25


def add_modelled(report):
    """Puts the model's values beside the measured ones, and prints both."""
    if any(report[key] != size for key, size in MODELLED.items()) or any(report["device"][key] != of for key, of in MODELLED_DEVICE.items()):
        print("gpu_report.py: the static model has no figures of this device and these sizes")
        return
    if not MODEL.is_file():
        print(f"gpu_report.py: nothing is compared with the static model: there is no {MODEL.name}", file=sys.stderr)
        return
    modelled = {}
    for name, figure in json.loads(MODEL.read_text()).items():
        plan = name.rsplit(".", 1)[0]
        modelled[plan] = modelled.get(plan, 0.0) + figure["ms"]
    how = "simulated" if report["simulated"] else "measured"
    for section in report["sections"]:
        figures = section["figures"]
        pairs = {name: (figures[name], modelled.get(plan)) for name, plan in PLANS.get(section["name"], {}).items() if name in figures}
        if section["name"] == "functions":
            pairs |= {one["function"]: (one["ms"], modelled.get(f"only_{one['function']}")) for one in figures.get("each", [])}
        pairs = {name: pair for name, pair in pairs.items() if pair[1]}
        if not pairs:
            continue
        section["modelled"] = {name: round(model, 4) for name, (_, model) in pairs.items()}
        section[f"{how}_by_modelled"] = {name: round(ms / model, 3) for name, (ms, model) in pairs.items()}
        shown = {name: (ms, model) for name, (ms, model) in pairs.items() if section["name"] != "functions" or not 1 / FAR <= ms / model <= FAR}
        print(f"{section['name']}: {len(pairs)} figures beside the model's, {len(shown)} shown")
        for name, (ms, model) in shown.items():
            print(f"  {name:<20} {ms:9.3f} ms {how} {model:9.3f} ms modelled {ms / model:6.2f} of it")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("reports", type=pathlib.Path, nargs="+")
    parser.add_argument("--peers", type=pathlib.Path)
    parser.add_argument("--clocks", type=pathlib.Path)
    parser.add_argument("--devices", type=pathlib.Path)
    parser.add_argument("--soak", type=pathlib.Path)
    parser.add_argument("--simulated", action="store_true", help="take what the driver of tests reports, for a dry run")
    args = parser.parse_args()
    report, *others = (json.loads(path.read_text()) for path in args.reports)
    if report["simulated"] and not args.simulated:
        print("gpu_report.py: simulated, so nothing is kept", file=sys.stderr)
        return 1
    for other in others:
        if other["device"] != report["device"]:
            print("gpu_report.py: the reports are of two devices", file=sys.stderr)
            return 1
        names = {section["name"] for section in other["sections"]}
        report["sections"] = [s for s in report["sections"] if s["name"] not in names] + other["sections"]
    if args.clocks and args.clocks.is_file():
        clocks = [[int(mhz) for mhz in line.split(",")] for line in args.clocks.read_text().splitlines()]
        if clocks:
            report["sm_clock_mhz"] = {"seen": sorted({now for now, _ in clocks}), "most": clocks[0][1]}
    if args.peers and args.peers.is_file():
        report["peers"] = json.loads(args.peers.read_text())
    for name, path in (("devices", args.devices), ("soak", args.soak)):
        if not path or not path.is_file():
            continue
        own = json.loads(path.read_text())
        if own["how"] != ("simulated" if report["simulated"] else "measured") or own["devices"][0] != report["device"]:
            print(f"gpu_report.py: {path} is of another device than the figures", file=sys.stderr)
            return 1
        report[name] = {key: own[key] for key in ("how", "date", "devices", "symbols", "bars", "figures")}
    add_modelled(report)
    args.output.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
