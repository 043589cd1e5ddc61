"""The results of the cases, summarised by function: as text, Markdown and data."""

from dataclasses import dataclass, field

HEADINGS = ("function", "cases", "values", "largest error", "unstable", "rounding", "behind", "refused", "differ")
EXAMPLES_A_FUNCTION = 3
# Of a function's cases, the share that TA-Lib's rounding alone may explain, and the cases from which it counts.
ROUNDING_SHARE_MAX = 0.02
ROUNDING_CASES_MIN = 100


@dataclass
class Finding:
    """One case: compared (`outputs`), or refused by one side with its reason."""

    function: str
    outputs: list = field(default_factory=list)
    place: str = ""
    refused: str = ""


@dataclass
class Row:
    cases: int = 0
    values: int = 0
    largest: float = 0.0
    unstable: int = 0
    rounding: int = 0
    rounding_cases: int = 0
    behind: int = 0
    refused: int = 0
    differ: int = 0

    def cells(self, name):
        return (name, self.cases, self.values, f"{self.largest:.1e}", self.unstable, self.rounding,
                self.behind, self.refused, self.differ)


class Summary:
    def __init__(self, names):
        self.rows = {name: Row() for name in names}
        self.examples = {}

    def add(self, finding):
        row = self.rows[finding.function]
        row.cases += 1
        if finding.refused:
            row.refused += 1
            self.note(finding.function, finding.refused)
        wrong = False
        for output in finding.outputs:
            row.values += output.values
            row.largest = max(row.largest, output.largest)
            row.unstable += output.unstable
            row.rounding += output.rounding
            row.behind += output.behind
            if output.differs:
                wrong = True
                self.note(finding.function, f"{finding.place}: {output.differs}")
        row.differ += wrong
        row.rounding_cases += any(output.rounding for output in finding.outputs)

    def note(self, function, text):
        self.examples.setdefault(function, []).append(text)

    def wrong(self):
        """Whether anything differs, is refused by one side, or is explained by rounding too often."""
        return any(row.differ or row.refused for row in self.rows.values()) or bool(self.too_rounded())

    def too_rounded(self):
        return [name for name, row in self.rows.items()
                if row.cases >= ROUNDING_CASES_MIN and row.rounding_cases > ROUNDING_SHARE_MAX * row.cases]

    def table(self):
        total = Row()
        for row in self.rows.values():
            for name in ("cases", "values", "unstable", "rounding", "behind", "refused", "differ"):
                setattr(total, name, getattr(total, name) + getattr(row, name))
            total.largest = max(total.largest, row.largest)
        return [row.cells(name) for name, row in self.rows.items()] + [total.cells(f"all {len(self.rows)}")]

    def text(self):
        widths = [max(len(str(cells[i])) for cells in [HEADINGS, *self.table()]) for i in range(len(HEADINGS))]
        lines = []
        for cells in [HEADINGS, *self.table()]:
            first, *rest = (str(cell) for cell in cells)
            lines.append("  ".join([first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(rest, widths[1:]))]))
        lines += [f"DIFFERS {name}: rounding in {self.rows[name].rounding_cases} cases is too often"
                  for name in self.too_rounded()]
        for function, notes in self.examples.items():
            lines += [f"DIFFERS {note}" for note in notes[:EXAMPLES_A_FUNCTION]]
            if len(notes) > EXAMPLES_A_FUNCTION:
                lines.append(f"DIFFERS {function}: {len(notes) - EXAMPLES_A_FUNCTION} more")
        return "\n".join(lines)

    def markdown(self):
        lines = ["| " + " | ".join(HEADINGS) + " |", "|---|" + "---:|" * (len(HEADINGS) - 1)]
        lines += ["| " + " | ".join(str(c) for c in cells) + " |" for cells in self.table()]
        return "\n".join(lines) + "\n"

    def data(self):
        rows = {name: vars(row) for name, row in self.rows.items()}
        return {"functions": rows, "differences": self.examples}
