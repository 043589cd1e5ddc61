#!/usr/bin/env python3
"""Words of time and sessions at every bar, against what a plain reading of the clock of New York gives.

    session_words.py --trawl FILE

Two symbols with early, regular and late trading in bars of five minutes, with gaps, over a change to summer time, a holiday and an
early close. Nothing here comes from Trawl but the answer.
"""

import argparse
import csv
import datetime as dt
import math
import random
import subprocess
import tempfile
from pathlib import Path
from zoneinfo import ZoneInfo

NEW_YORK = ZoneInfo("America/New_York")
MINUTES = 5
# Dates around the change to summer time, and around 4 July 2024: closed on the 4th, until 13:00 on the 3rd.
DATES = [dt.date(2024, 3, 7), dt.date(2024, 3, 8), dt.date(2024, 3, 11), dt.date(2024, 3, 12)]
DATES += [dt.date(2024, 7, 1), dt.date(2024, 7, 2), dt.date(2024, 7, 3), dt.date(2024, 7, 5)]
EARLY_CLOSE = {dt.date(2024, 7, 3): 13 * 60}
OPEN, CLOSE = 9 * 60 + 30, 16 * 60
RANGE = 30
WORDS = [
    "minutes_since_open",
    "minutes_to_close",
    "session_bar",
    "time_of_day",
    "weekday",
    "month",
    "session.open",
    "session.high",
    "session.low",
    "prev_session.open",
    "prev_session.high",
    "prev_session.low",
    "prev_session.close",
    f"opening_range({RANGE}).high",
    f"opening_range({RANGE}).low",
]


def market():
    """Bars by symbol: date, minute of the day, and prices. The second symbol has no regular bars on one day, and begins late."""
    draws = random.Random(7)
    symbols = {}
    for symbol, density in (("AAA", 0.9), ("BBB", 0.15)):
        bars, price = [], 100.0
        for date in DATES:
            for minute in range(4 * 60, 20 * 60, MINUTES):
                regular = OPEN <= minute < EARLY_CLOSE.get(date, CLOSE)
                silent = symbol == "BBB" and date == dt.date(2024, 7, 2) and regular
                if silent or draws.random() > (density if regular else density / 3):
                    continue
                first = price
                price = round(price + draws.randint(-60, 60) / 100, 2)
                high, low = max(first, price) + draws.randint(0, 30) / 100, min(first, price) - draws.randint(0, 30) / 100
                bars.append((date, minute, round(first, 2), round(high, 2), round(low, 2), price))
        symbols[symbol] = bars
    return symbols


def instant(date, minute):
    wall = dt.datetime.combine(date, dt.time(minute // 60, minute % 60), NEW_YORK)
    return wall.astimezone(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def expected(bars, at):
    date, minute = bars[at][:2]
    close = EARLY_CLOSE.get(date, CLOSE)
    regular = lambda bar: OPEN <= bar[1] < EARLY_CLOSE.get(bar[0], CLOSE)
    today = [bar for bar in bars[: at + 1] if bar[0] == date and regular(bar)]
    inside = regular(bars[at])
    dates = sorted({bar[0] for bar in bars if bar[0] < date and regular(bar)})
    before = [bar for bar in bars if dates and bar[0] == dates[-1] and regular(bar)]
    early = [bar for bar in today if bar[1] - OPEN < RANGE]
    is_over = any(bar[1] - OPEN >= RANGE for bar in today)
    none = math.nan
    return [
        minute - OPEN if inside else none,
        close - minute if inside else none,
        len(today) if inside else none,
        minute,
        date.isoweekday(),
        date.month,
        today[0][2] if today else none,
        max(bar[3] for bar in today) if today else none,
        min(bar[4] for bar in today) if today else none,
        before[0][2] if before else none,
        max(bar[3] for bar in before) if before else none,
        min(bar[4] for bar in before) if before else none,
        before[-1][5] if before else none,
        max(bar[3] for bar in early) if early and is_over else none,
        min(bar[4] for bar in early) if early and is_over else none,
    ]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--trawl", required=True)
    trawl = arguments.parse_args().trawl
    symbols = market()
    with tempfile.TemporaryDirectory() as folder:
        bars, answer = Path(folder) / "bars.csv", Path(folder) / "answer.csv"
        with bars.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["symbol", "time", "open", "high", "low", "close", "volume"])
            for symbol, rows in symbols.items():
                writer.writerows([symbol, instant(*row[:2]), *row[2:], 100] for row in rows)
        run = lambda *arguments: subprocess.run([trawl, *arguments, "--data-root", folder], check=True, capture_output=True, text=True)
        run("data", "import", str(bars), "--dataset", "s", "--timeframe", f"{MINUTES}m", "--calendar", "XNYS")
        columns = [part for i, word in enumerate(WORDS) for part in ("--select", f"{word} as w{i}")]
        run("scan", "--dataset", "s", "--where", "true", *columns, "--all-bars", str(answer))
        with answer.open(newline="") as file:
            found = {(row["symbol"], row["time"]): row for row in csv.DictReader(file)}
    wrong = compared = 0
    for symbol, rows in symbols.items():
        for at, row in enumerate(rows):
            got = found[symbol, instant(*row[:2])]
            for i, want in enumerate(expected(rows, at)):
                text = got[f"w{i}"]
                value = float(text) if text else math.nan
                compared += 1
                if value != want and not (math.isnan(value) and math.isnan(want)):
                    wrong += 1
                    if wrong <= 20:
                        print(f"{symbol} {instant(*row[:2])} {WORDS[i]}: {text or 'NA'}, expected {want}")
    print(f"{compared} values compared, {wrong} differ")
    raise SystemExit(wrong > 0 or compared < 5000)


if __name__ == "__main__":
    main()
