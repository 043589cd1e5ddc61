"""What the tests of random scans print (tests/tests/agreement): a line for each kind of bars, with the bits of everything that was compared."""

import re

# The beginning of their names, which are one for each kind of bars.
TESTS = "agreement::the_engine_agrees_with_the_reference_on_random_scans"
BARS = ("days", "minutes")
LINE = re.compile(r"\d+ scans of (\w+) from seed \d+: .* bits [0-9a-f]{16}")


def lines(said):
    """By kind of bars, the line of its scans."""
    return {found[1]: found[0] for found in LINE.finditer(said)}
