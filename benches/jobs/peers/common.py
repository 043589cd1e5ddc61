"""What every peer's script shares: its command line.

    with_LIBRARY.py WAY FOLDER ANSWER

WAY is one of the script's functions, FOLDER holds the market (bars.parquet, bars.arrow, bars.duckdb; of an import, the text file), ANSWER
is the file to write. Nothing is imported here but the standard library: what a script imports is part of its time.
"""

import csv
import sys

# The conditions and numbers of the jobs; contestants.py says the same in Trawl's language.
FAST, SLOW, RSI, BELOW, WITHIN = 50, 200, 14, 60.0, 3
WEIGHTS = {63: 0.4, 126: 0.2, 189: 0.2, 252: 0.2}
SHARE = 0.9
SWEEP_FAST = list(range(5, 51, 5))
SWEEP_SLOW = list(range(60, 201, 20))
SWEEP_BARS = 1500
DAYS = 20
# Bars after which the first value of a Wilder mean of 14 is forgotten: (13/14)^512 is below 1e-16.
TAIL = 512


def main(ways):
    way, folder, answer = sys.argv[1:]
    ways[way](folder, answer)


def write_matches(answer, rows):
    """A CSV file of (symbol, number) pairs."""
    with open(answer, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["symbol", "value"])
        writer.writerows(rows)
