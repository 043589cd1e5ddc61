"""One case against TA-Lib: agreement bar by bar, and evidence for what does not agree."""

from dataclasses import dataclass, field

import numpy

TOLERANCE = 1e-9
# How the inputs are disturbed to see whether an answer depends on their last digits.
DISTURBANCE = 1e-13
DISTURBED_RUNS = 40
# An answer must move by this share of a difference for the difference to count as explained.
MOVED_SHARE = 0.1


@dataclass
class Output:
    """The result of comparing one output of one case."""

    name: str
    values: int
    # The largest error among the bars within the tolerance.
    largest: float
    # Bars that differ but depend on the last digits of the inputs.
    unstable: int = 0
    # Bars that differ, though stable, where TA-Lib is as far from the double-double value and Trawl is on it.
    rounding: int = 0
    # Of all bars that differ, those where TA-Lib is within the tolerance of the double-double value and Trawl is not.
    behind: int = 0
    # The first of the other bars, in words.
    differs: str = ""


@dataclass
class Comparison:
    """A case, Trawl's values and TA-Lib's, and how far either's move under disturbed inputs."""

    case: object
    ours: list
    theirs: list
    errors: list = field(init=False)
    moved: list = field(init=False)
    reference: list = field(default_factory=list)

    def __post_init__(self):
        self.errors = [differences(o, t) for o, t in zip(self.ours, self.theirs)]
        self.moved = [numpy.zeros(len(t)) for t in self.theirs]

    def agrees(self):
        return not any((e > TOLERANCE).any() for e in self.errors)

    def disturb(self, ours, theirs):
        """Adds the values of both for disturbed inputs."""
        for i, moved in enumerate(self.moved):
            mine = differences(ours[i], self.ours[i], self.theirs[i])
            other = differences(theirs[i], self.theirs[i], self.theirs[i])
            self.moved[i] = numpy.maximum(moved, numpy.maximum(mine, other))

    def unexplained(self, i):
        """The bars of output i that differ and do not depend on the last digits."""
        return (self.errors[i] > TOLERANCE) & (self.moved[i] < MOVED_SHARE * self.errors[i])

    def stable_difference(self):
        return any(self.unexplained(i).any() for i in range(len(self.errors)))

    def outputs(self):
        return [self.output(i) for i in range(len(self.errors))]

    def output(self, i):
        error, left = self.errors[i], self.unexplained(i)
        beyond = error > TOLERANCE
        found = Output(self.case.outputs[i], int((~numpy.isnan(self.theirs[i])).sum()),
                       float(error[~beyond].max(initial=0.0)), int((beyond & ~left).sum()))
        if self.reference:
            exact = self.reference[i]
            mine, off = differences(self.ours[i], exact), differences(self.theirs[i], exact)
            found.behind = int((beyond & (mine > TOLERANCE) & (off <= TOLERANCE)).sum())
            excused = left & (mine <= TOLERANCE) & (error <= TOLERANCE + off)
            found.rounding, left = int(excused.sum()), left & ~excused
        if left.any():
            bar = int(numpy.flatnonzero(left)[0])
            exact = f", exactly {float(self.reference[i][bar])!r}" if self.reference else ""
            found.differs = (f"{found.name} at bar {bar} is {float(self.ours[i][bar])!r}, TA-Lib "
                             f"{float(self.theirs[i][bar])!r}{exact} (disturbed, they move by "
                             f"{self.moved[i][bar]:.1e}); {left.sum()} bars differ")
        return found


def differences(a, b, scale=None):
    """|a - b| / max(1, |scale|), with b as the scale if none is given: 0 where equal or both undefined, infinite where
    one alone is undefined."""
    with numpy.errstate(all="ignore"):
        error = numpy.abs(a - b) / numpy.fmax(1.0, numpy.abs(b if scale is None else scale))
    same = (a == b) | (numpy.isnan(a) & numpy.isnan(b))
    return numpy.where(same, 0.0, numpy.where(numpy.isnan(error), numpy.inf, error))
