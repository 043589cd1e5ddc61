"""What docs/telemetry.md shows of a whole run, and whether it is of the alerts and dashboards that there are."""

import collections
import re

import claims
import yaml
from faults import NEVER
from prometheus import queries

# Columns of the tables that a run prints.
FIRED, QUERIES = ("alert", "cluster", "fault", "fired after", "ended after"), ("dashboard", "queries", "with data")
PAGE, COMMAND = "docs/telemetry.md", "just observability --write"
# Pages that name the alerts that are never made to fire.
NAMING = ("docs/runbook.md", "docs/tried.md")


def alerts(root):
    """The names of all alerts."""
    groups = yaml.safe_load((root / "deploy/prometheus/alerts.yaml").read_text())["groups"]
    return {rule["alert"] for group in groups for rule in group["rules"]}


def write(root, seconds, rows, counts, program):
    """Puts the tables of a whole run on the page."""
    tried, queried = len({row[0] for row in rows}), sum(row[1] for row in counts)
    text = (
        f"A run of {seconds / 60:.0f} minutes with {program}: {tried} of {len(alerts(root))} alerts fired by their fault and went away, {queried} queries\n"
        "were asked. Windows and waits of the rules were shortened: the times are those of this run, and an alert takes longer in production. The\n"
        "last column counts from the end of the fault; a later fault may keep an alert up.\n\n"
        + claims.table([column.capitalize() for column in FIRED], rows)
        + "\nQueries of the dashboards over that run; NVIDIA's exporter of GPUs is simulated, the devices are the test driver's:\n\n"
        + claims.table([column.capitalize() for column in QUERIES], counts)
    )
    claims.show(root / PAGE, COMMAND, text)
    print(f"wrote {PAGE}")


def stale(root):
    """In which points the pages are not of the alerts and dashboards that there are."""
    written = claims.shown(root / PAGE, COMMAND)
    wrong = []
    tried, there = set(re.findall(r"^\| (Trawl\w+) \|", written, re.M)), alerts(root)
    if tried | set(NEVER) != there:
        wrong.append(f"{PAGE}: its table and the alerts differ in {', '.join(sorted((tried | set(NEVER)) ^ there))}")
    counts = collections.Counter(query[0] for query in queries(root))
    shown = {board: int(count) for board, count in re.findall(r"^\| (\w+) \| (\d+) \| \d+ \|$", written, re.M)}
    if shown != counts:
        wrong.append(f"{PAGE}: it counts {shown} queries, the dashboards have {dict(counts)}")
    for name in NAMING:
        wrong += [f"{name}: it does not name {alert}, which is never made to fire" for alert in NEVER if alert not in (root / name).read_text()]
    return wrong
