"""Evaluates expressions over bars with Trawl, or with its double-double reference, through files."""

import itertools
import pathlib
import subprocess
from dataclasses import dataclass

import pyarrow
import pyarrow.csv

EXPRESSIONS_MAX = 200
COMPUTE_TIMEOUT_S = 600


@dataclass
class Bench:
    """What computes series: Trawl, and the double-double reference where it is given."""

    trawl: str
    reference: str | None
    folder: pathlib.Path

    def write(self, columns):
        rows = zip(*(x.tolist() for x in columns.values()))
        text = [",".join(["i", *columns])] + [",".join([str(i), *map(cell, row)]) for i, row in enumerate(rows)]
        (self.folder / "bars.csv").write_text("\n".join(text) + "\n")

    def compute(self, expressions, program=None):
        """The values of each expression over the bars written last; for each that is refused the message. What a
        plan's limits refuse together is asked for in halves."""
        if len(expressions) > EXPRESSIONS_MAX:
            return self.halves(expressions, program)
        arguments = program or [self.trawl, "compute"]
        arguments = [*arguments, "--input", str(self.folder / "bars.csv"), "--output", str(self.folder / "out.csv")]
        for i, expression in enumerate(expressions):
            arguments += ["--expr", f"{expression} as c{i}"]
        ended = subprocess.run(arguments, capture_output=True, text=True, timeout=COMPUTE_TIMEOUT_S)
        if ended.returncode != 0 and len(expressions) > 1:
            return self.halves(expressions, program)
        if ended.returncode != 0:
            return [ended.stderr.strip() or f"exit code {ended.returncode}"]
        names = [f"c{i}" for i in range(len(expressions))]
        options = pyarrow.csv.ConvertOptions(column_types={n: pyarrow.float64() for n in names}, include_columns=names)
        table = pyarrow.csv.read_csv(self.folder / "out.csv", convert_options=options)
        return [table[n].to_numpy(zero_copy_only=False).astype(float) for n in names]

    def halves(self, expressions, program):
        half = len(expressions) // 2
        return self.compute(expressions[:half], program) + self.compute(expressions[half:], program)

    def of_cases(self, wanted, program=None):
        """As `compute`, one list for each case."""
        if not wanted:
            return []
        flat = iter(self.compute([e for c in wanted for e in c.expressions()], program))
        return [list(itertools.islice(flat, len(c.outputs))) for c in wanted]


def cell(x):
    """Shortest digits that read back the same; empty for NA."""
    return "" if x != x else repr(x)
