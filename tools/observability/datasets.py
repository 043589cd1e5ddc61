"""Bars of the clusters: which datasets there are, and imports into them."""

import datetime
import shutil
import subprocess

# The dataset whose age coordinators watch, and how old its newest bar may be.
WATCHED, WATCHED_HOURS = "watched", 96
DAYS = 30
# A dataset with many segments.
WIDE, WIDE_SYMBOLS, WIDE_BARS = "wide", 10_000, 50
# One of which a small device computes one segment at a time.
LONG, LONG_SYMBOLS, LONG_BARS = "long", 1920, 500
# A dataset to which so many files of bars were appended, the fewest that --compact-appended takes. Bars are appended only where writing the
# others again would take more than a megabyte.
APPENDED, APPENDED_FILES, APPENDED_SYMBOLS, APPENDED_DAYS = "appended", 2, 64, 600


def import_daily(trawl, data, days_ago, dataset=WATCHED, days=DAYS, symbols=1):
    """Imports daily bars into a dataset, the newest of them so many days old."""
    last = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=days_ago)
    dates = [last - datetime.timedelta(days=ago) for ago in reversed(range(days))]
    bars = (f"S{symbol:02},{date},1,1,1,1,1" for symbol in range(symbols) for date in dates)
    lines = ["symbol,date,open,high,low,close,volume", *bars]
    command = [trawl, "data", "import", "--dataset", dataset, "--calendar", "24/7", "--data-root", data, "-"]
    subprocess.run(list(map(str, command)), input="\n".join(lines) + "\n", text=True, check=True, capture_output=True)


def make_appended(trawl, data):
    """The dataset with appended files, made anew."""
    shutil.rmtree(data / APPENDED, ignore_errors=True)
    import_daily(trawl, data, 1 + APPENDED_FILES, APPENDED, APPENDED_DAYS, APPENDED_SYMBOLS)
    for days_ago in range(APPENDED_FILES, 0, -1):
        import_daily(trawl, data, days_ago, APPENDED, 1, APPENDED_SYMBOLS)
