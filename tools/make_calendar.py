#!/usr/bin/env python3
"""Writes the sessions of an exchange, as market/data/calendars/ keeps them, to standard output.

    python3 -m venv VENV && VENV/bin/pip install exchange_calendars==4.13.2
    VENV/bin/python tools/make_calendar.py XNYS 1970-01-01 2035-12-31 > market/data/calendars/XNYS.txt

The sessions (dates, opens, closes: facts) come from the Python package exchange_calendars (Apache-2.0). One line is a
run of sessions on consecutive days from Monday to Friday with the same hours: first date, number of sessions, open and
close in UTC. Holidays, early closes and the change of the clocks end a run. Before 1970 the package leaves out most
holidays of XNYS; after the years the exchange has announced, it follows the rules of today.
"""

import sys
from importlib.metadata import version

import exchange_calendars
import pandas


def main() -> None:
    name, start, end = sys.argv[1:4]
    schedule = exchange_calendars.get_calendar(name, start=start, end=end).schedule
    print(f"# Sessions of {name}, from the Python package exchange_calendars {version('exchange_calendars')} (Apache-2.0),")
    print("# written by tools/make_calendar.py. A line: first date of a run of sessions Monday to Friday with the same")
    print("# hours, number of sessions, open and close in UTC.")
    print(f"range {start} {end}")
    runs = []
    for date, opens, closes in zip(schedule.index, schedule["open"], schedule["close"]):
        assert date == opens.normalize().tz_localize(None) == closes.normalize().tz_localize(None), date
        hours = (opens.strftime("%H:%M"), closes.strftime("%H:%M"))
        assert opens.second == closes.second == 0, date
        follows = runs and date == runs[-1]["last"] + pandas.offsets.BDay(1) and runs[-1]["hours"] == hours
        if follows and date.weekday() < 5 and runs[-1]["last"].weekday() < 5:
            runs[-1]["last"] = date
            runs[-1]["count"] += 1
        else:
            runs.append({"first": date, "last": date, "count": 1, "hours": hours})
    for run in runs:
        print(run["first"].strftime("%Y-%m-%d"), run["count"], *run["hours"])


if __name__ == "__main__":
    main()
