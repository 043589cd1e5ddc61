#!/usr/bin/env python3
"""`trawl study` against the same figures computed here from exported closes and the answers at every bar.

    study.py --trawl FILE
"""

import argparse
import csv
import datetime
import json
import math
import statistics
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

HORIZONS = [1, 5, 20]
STUDIES = [
    ("us5", "rsi(2) < 15", [], None, None),
    ("us5", "rsi(2) < 15", [], None, "2011-06-15"),
    ("demo", "crosses_above(close, sma(50))", ["--adjust", "split"], "sector", None),
    ("demo", "close > highest(high, 60)[1]", [], None, None),
    ("us5", "rsi(2) < 15", [], "year", "2010-06-15"),
    ("us5", "rsi(2) < 15", [], "weekday", None),
    ("demo", "close > highest(high, 60)[1]", [], "2022-07-01,2024-01-02", None),
]
WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def group_of_bar(by):
    """The group of a bar's time, where bars are grouped and not symbols."""
    if by == "year":
        return lambda time: time[:4]
    if by == "weekday":
        return lambda time: WEEKDAYS[datetime.date.fromisoformat(time).weekday()]
    if by and by[0].isdigit():
        dates = by.split(",")
        return lambda time: f"before {dates[0]}" if time < dates[0] else f"from {max(date for date in dates if date <= time)}"
    return None


def expected(closes, answers, labels, of_bar):
    """Figures by group and horizon, from closes {symbol: {time: close}} and answers [(time, symbol, matched)]."""
    found = {}
    for horizon in HORIZONS:
        returns = {}
        for symbol, series in closes.items():
            times = sorted(series)
            for at, time in enumerate(times):
                if at + horizon < len(times):
                    returns[symbol, time] = series[times[at + horizon]] / series[time] - 1
        number = {time: at for at, time in enumerate(sorted({time for time, _, _ in answers}))}
        groups = defaultdict(lambda: defaultdict(lambda: ([], [])))
        opened = defaultdict(int)
        for time, symbol, matched in answers:
            group = of_bar(time) if of_bar else labels.get(symbol) if labels else None
            value = returns.get((symbol, time))
            if value is None:
                opened[group] += matched
                groups[group][time]
                continue
            everyone, matches = groups[group][time]
            everyone.append(value)
            if matched:
                matches.append(value)
        for group, bars in groups.items():
            everyone = [value for all_, _ in bars.values() for value in all_]
            matches = [value for _, some in bars.values() for value in some]
            excess = {number[t]: statistics.fmean(some) - statistics.fmean(all_) for t, (all_, some) in bars.items() if some}
            found[group, horizon] = {
                "matches": len(matches),
                "open": opened[group],
                "bars": len(excess),
                "hit_rate": sum(value > 0 for value in matches) / len(matches) if matches else None,
                "mean": statistics.fmean(matches) if matches else None,
                "median": statistics.median(matches) if matches else None,
                "universe": len(everyone),
                "universe_mean": statistics.fmean(everyone) if everyone else None,
                "universe_hit_rate": sum(value > 0 for value in everyone) / len(everyone) if everyone else None,
                "excess": statistics.fmean(excess.values()) if excess else None,
                "t": newey_west(excess, horizon),
            }
    return found


def newey_west(excess, lags):
    if len(excess) < 2:
        return None
    mean = statistics.fmean(excess.values())
    variance = math.fsum((value - mean) ** 2 for value in excess.values())
    for lag in range(1, lags):
        pairs = [(excess[at] - mean) * (excess[at + lag] - mean) for at in excess if at + lag in excess]
        variance += 2 * (1 - lag / lags) * math.fsum(pairs)
    error = math.sqrt(max(variance, 0)) / len(excess)
    return mean / error if error > 0 else None


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--trawl", required=True)
    trawl = arguments.parse_args().trawl
    compared = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        def run(*arguments):
            command = [trawl, *arguments, "--data-root", folder]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout

        for dataset, condition, options, by, first in STUDIES:
            answer, bars = Path(folder) / "answer.csv", Path(folder) / "bars.csv"
            scan = ["--dataset", dataset, "--where", condition, *options]
            run("scan", *scan, "--all-bars", str(answer))
            # Returns are adjusted by every split, whatever the scan is adjusted by.
            run("data", "export", dataset, "--output", str(bars), "--adjust", "split" if dataset == "demo" else "none")
            closes, labels = defaultdict(dict), {}
            with bars.open(newline="") as file:
                for row in csv.DictReader(file):
                    closes[row["symbol"]][row["time"]] = float(row["close"])
            with answer.open(newline="") as file:
                rows = list(csv.DictReader(file))
            answers = [(row["time"], row["symbol"], row["status"] == "matched") for row in rows if row["status"] in ("matched", "not_matched")]
            answers = [row for row in answers if first is None or row[0] >= first]
            of_bar = group_of_bar(by)
            if by and not of_bar:
                for symbol in closes:
                    listed = json.loads(run("data", "inspect", dataset, "--symbol", symbol, "--json"))
                    labels[symbol] = label_of(listed, by)
                answers = [row for row in answers if labels.get(row[1])]
            study = run("study", *scan, "--horizons", ",".join(map(str, HORIZONS)), *(["--by", by] if by else []), *(["--from", first] if first else []), "--json")
            found = {(of["group"], of["horizon"]): of for of in json.loads(study)}
            wanted = expected(closes, answers, labels, of_bar)
            if set(found) != set(wanted):
                raise SystemExit(f"{condition}: groups {sorted(map(str, found))}, expected {sorted(map(str, wanted))}")
            for key, figures in wanted.items():
                for name, want in figures.items():
                    got = found[key][name]
                    compared += 1
                    same = got == want if want is None or got is None else math.isclose(got, want, rel_tol=1e-9, abs_tol=1e-12)
                    if not same:
                        wrong += 1
                        print(f"{dataset} {condition} {key} {name}: {got}, expected {want}")
    print(f"{compared} figures compared, {wrong} differ")
    raise SystemExit(wrong > 0 or compared < 300)


def label_of(listed, label):
    """The label of the last row of a symbol's listing, wherever the JSON has it."""
    if isinstance(listed, dict):
        for key, value in listed.items():
            if key == "listing" and value:
                return value[-1]["labels"].get(label)
            found = label_of(value, label)
            if found:
                return found
    if isinstance(listed, list):
        for value in listed:
            found = label_of(value, label)
            if found:
                return found
    return None


if __name__ == "__main__":
    main()
