"""Reads a scrape with the parsers of the Prometheus project's own client library, and prints how many families it has.

    read_metrics.py openmetrics|prometheus FILE
"""

import sys

from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics

with open(sys.argv[2], encoding="utf-8") as scrape:
    text = scrape.read()
read = openmetrics if sys.argv[1] == "openmetrics" else parser
families = list(read.text_string_to_metric_families(text))
assert all(family.documentation and family.type != "unknown" for family in families), families
print(len(families))
