#!/usr/bin/env python3
"""Writes the calendars of exchanges: market/data/calendars/CODE.txt, and samples/CODE.txt, which tests compare with.

    python3 -m venv target/venv-calendars && target/venv-calendars/bin/pip install exchange_calendars==4.13.2
    target/venv-calendars/bin/python tools/make_calendar.py            # all of EXCHANGES
    target/venv-calendars/bin/python tools/make_calendar.py XTKS XHKG

The sessions (dates, opens, closes, breaks: facts) come from the Python package exchange_calendars (Apache-2.0). A new
exchange is a row of EXCHANGES, or a file written by hand; docs/calendars.md describes the format. Nothing else is edited.

A row says from when on the package's dates are right, and from when on its hours: it has today's hours for years in
which the exchange had others. After the years that an exchange has announced, the package follows the rules of today.
"""

import hashlib
import sys
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path

import exchange_calendars
import pandas

FOLDER = Path(__file__).resolve().parent.parent / "market" / "data" / "calendars"

# code: (title, other names, first date, last date, hours known from, start of the trading day)
EXCHANGES = {
    "XNYS": ("New York Stock Exchange", "NYSE ARCA AMEX BATS CBOE", "1970-01-01", "2035-12-31", None, "04:00"),
    "XNAS": ("Nasdaq", "NASDAQ", "1971-02-08", "2035-12-31", None, "04:00"),
    "XLON": ("London Stock Exchange", "LSE LONDON FTSE", "1990-01-01", "2035-12-31", "2000-01-01", None),
    "XETR": ("Xetra, Frankfurt", "XETRA FRANKFURT FWB GER", "1998-01-01", "2035-12-31", "2003-11-03", None),
    "XTKS": ("Tokyo Stock Exchange", "TSE JPX TOKYO", "1997-01-01", "2035-12-31", "2011-11-21", None),
    "XHKG": ("Hong Kong Stock Exchange", "HKEX SEHK HKSE HONGKONG", "1998-01-01", "2035-12-31", "2012-03-05", None),
    "XASX": ("Australian Securities Exchange", "ASX SYDNEY", "1990-01-01", "2035-12-31", "2010-01-01", None),
    "XBOM": ("Bombay Stock Exchange", "BSE BOMBAY MUMBAI", "1999-01-01", "2026-12-31", "2010-10-18", None),
    "XPHS": ("Philippine Stock Exchange", "PSE MANILA", "2002-01-01", "2035-12-31", "2022-03-01", None),
    "CMES": ("CME Globex", "CME CBOT COMEX NYMEX GLOBEX", "1990-01-01", "2035-12-31", "2010-01-01", None),
}

# Hours that the package does not have. XPHS: the exchange's announcements of 2012-01-02 and of 2022-03-01.
CORRECTIONS = {
    "XPHS": [("2012-01-02", "09:30-12:00 13:30-15:30"), ("2022-03-01", "09:30-12:00 13:00-15:00")],
}


def clock(at, date, zone):
    """A time in the exchange's local time, as 09:30, or -1d17:00 on the evening before `date`."""
    wall = at.tz_convert(zone).tz_localize(None)
    days = (wall.normalize() - date).days
    assert wall.second == 0 and days in (-1, 0), (date, wall)
    return ("-1d" if days else "") + wall.strftime("%H:%M")


def instant(text, date, zone):
    days, text = (-1, text[3:]) if text.startswith("-1d") else (0, text)
    wall = date + pandas.Timedelta(days=days, hours=int(text[:2]), minutes=int(text[3:]))
    return wall.tz_localize(zone).tz_convert("UTC")


def sessions_of(code, start, end):
    """Date and hours in local time of every session."""
    calendar = exchange_calendars.get_calendar(code, start=start, end=end)
    sessions = {}
    for row in calendar.schedule.itertuples():
        date = row.Index
        opens, closes = clock(row.open, date, calendar.tz), clock(row.close, date, calendar.tz)
        if row.break_start is not pandas.NaT:
            rest = [clock(at, date, calendar.tz) for at in (row.break_start, row.break_end)]
            sessions[date] = f"{opens}-{rest[0]} {rest[1]}-{closes}"
        else:
            sessions[date] = f"{opens}-{closes}"
        for since, hours in CORRECTIONS.get(code, []):
            if date >= pandas.Timestamp(since):
                sessions[date] = hours
    return str(calendar.tz), sessions


def rules_of(sessions):
    """The hours in force from a date on: those that ten sessions in a row have."""
    dates, rules = list(sessions), []
    for i, date in enumerate(dates):
        hours = sessions[date]
        if (not rules or rules[-1][1] != hours) and all(sessions[d] == hours for d in dates[i : i + 10]):
            rules.append((date, hours))
    rules[0] = (dates[0], rules[0][1])
    return rules


def write(code):
    title, also, start, end, known, day_start = EXCHANGES[code]
    zone, sessions = sessions_of(code, start, end)
    rules = rules_of(sessions)
    lines = [
        f"# Sessions of {code}, from the Python package exchange_calendars {version('exchange_calendars')} (Apache-2.0),",
        "# written by tools/make_calendar.py. The format: docs/calendars.md.",
        f"name {code}",
        f"title {title}",
        f"also {also}",
        f"zone {zone}",
        f"range {start} {end}",
    ]
    if known:
        lines.append(f"hours-known {known}")
    if day_start:
        lines.append(f"day-start {day_start}")
    lines += [f"hours {date:%Y-%m-%d} {hours}" for date, hours in rules]
    closed, special = defaultdict(list), defaultdict(list)
    for date in pandas.date_range(start, end):
        usual = next((hours for since, hours in reversed(rules) if since <= date), rules[0][1])
        usual = usual if date.weekday() < 5 else None
        hours = sessions.get(date)
        if usual and not hours:
            closed[date.year].append(f"{date:%m-%d}")
        elif hours != usual:
            special[(date.year, hours)].append(f"{date:%m-%d}")
    lines += [f"closed {year} {' '.join(days)}" for year, days in closed.items()]
    lines += [f"special {year} {' '.join(days)} {hours}" for (year, hours), days in special.items()]
    (FOLDER / f"{code}.txt").write_text("\n".join(lines) + "\n")
    sample(code, zone, sessions, rules, start, end)


def sample(code, zone, sessions, rules, start, end):
    """Sessions in UTC that a reader of the file must find, and a digest of all of them."""

    def in_utc(date):
        times = [instant(t, date, zone) for stretch in sessions[date].split() for t in cut(stretch)]
        return f"{date:%Y-%m-%d} " + " ".join(f"{t:%Y-%m-%dT%H:%M}" for t in times)

    def cut(stretch):
        at = stretch.rindex("-")
        return stretch[:at], stretch[at + 1 :]

    dates = list(sessions)
    text = "\n".join(in_utc(date) for date in dates) + "\n"
    usual = {hours for _, hours in rules}
    chosen = {dates[0], dates[-1]}
    for i in range(1, len(dates)):
        if 2023 <= dates[i].year <= 2025 and in_utc(dates[i])[22:27] != in_utc(dates[i - 1])[22:27]:
            chosen |= {dates[i - 1], dates[i]}  # the clocks change
        if any(since == dates[i] for since, _ in rules):
            chosen |= {dates[i - 1], dates[i]}
    chosen |= set([d for d in dates if sessions[d] not in usual and d.year <= 2026][-12:])
    weekdays = pandas.bdate_range(start, end)
    chosen |= set([d for d in weekdays if d not in sessions and d.year <= 2026][-14:])
    lines = [f"# Of tools/make_calendar.py: dates of {code}, in UTC open, close, and around a break; a digest of all sessions."]
    lines.append(f"sessions {len(dates)} sha256 {hashlib.sha256(text.encode()).hexdigest()}")
    lines += [in_utc(d) if d in sessions else f"{d:%Y-%m-%d} closed" for d in sorted(chosen)]
    (FOLDER / "samples" / f"{code}.txt").write_text("\n".join(lines) + "\n")


def main():
    (FOLDER / "samples").mkdir(exist_ok=True)
    for code in sys.argv[1:] or EXCHANGES:
        write(code)


if __name__ == "__main__":
    main()
