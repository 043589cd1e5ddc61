"""Merges what the steps of benches/gpu.sh measured into one report.

    gpu_report.py OUTPUT FIGURES [SANITIZER] [--peers FILE] [--clocks FILE] [--devices FILE] [--soak FILE] [--simulated]

FIGURES and SANITIZER are reports of `trawl bench gpu`: the sections of the second are added to those of the first. In every section
`figures` are measured values by name. A model's value of the same figure belongs beside them, in an object `modelled` of the section. The
peers' report (gpu_peers.py) becomes `peers`, the clocks (lines of nvidia-smi: MHz now, MHz at most) become `sm_clock_mhz`; what
`trawl bench devices` reports becomes `devices`, and `soak`. Simulated figures are refused without --simulated.
"""

import argparse
import json
import pathlib
import sys


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
    args.output.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
