"""A block of a kernel through time: what each of its warps (parts) takes a bar, and how long the block takes."""

import json
import math
from functools import cached_property
from dataclasses import dataclass, field
from pathlib import Path

import machine
import sass
import timing

SCHEDULERS = 4

# Bytes of a row: a value of each lane.
ROW_BYTES = 32 * 8

# Tiles that a steady state is taken from, at most.
STEADY_TILES = 10


@dataclass
class Walk:
    """A launch, walked. Costs are lists by step (from barrier to barrier) of lists by warp."""

    launch: dict
    code: object
    steps: list
    runs: list
    begin: list
    end: list
    steady: range
    whole: bool
    reads_maps: bool
    units: timing.F64Units = timing.MANY_UNITS
    differing: list = field(default_factory=list)

    @property
    def is_one_bar(self):
        """Whether it advances states by a bar: what it costs is not spread over bars."""
        return self.launch.get("one_bar", False)

    @cached_property
    def far_share(self):
        """Share of fetched lines that the multiprocessor's cache lacks, where the steady state's code exceeds it."""
        hot = self.hot_bytes
        return max(0.0, 1.0 - timing.FAR_BYTES / hot) if hot else 0.0

    @cached_property
    def hot_bytes(self):
        """Bytes of code that all warps of a block go through in the steady state; without one, in all steps."""
        clock = timing.Clock(self.code)
        lines = set()
        for run in {run for step in (self.steady or range(len(self.runs))) for run in self.runs[step]}:
            lines |= clock.lines(run)
        return timing.LINE * len(lines)

    def bars_read(self, bars):
        """Of so many: all, or the last ones where only finite windows are wanted."""
        return bars if self.whole else min(bars, len(self.steps) * self.launch["tile"])

    def cycles_of(self, cost):
        """With instructions' misses. A kernel of one bar goes through its code once: no cache has it."""
        if self.is_one_bar:
            return cost.cycles + cost.lines * timing.FAR_MISS
        share = self.far_share
        return cost.cycles + cost.near_misses * (timing.NEAR_MISS * (1 - share) + timing.FAR_MISS * share)

    def step_cycles(self, step):
        """A step lasts as long as its slowest warp, or as the units take that all warps share."""
        cycles = max(self.cycles_of(cost) for cost in self.steps[step])
        if self.units.are_shared:
            cycles = max(cycles, self.units.cycles * sum(cost.f64 for cost in self.steps[step]))
        return timing.BARRIER + cycles

    def part(self, warp, steps):
        """Mean cost of a step of a warp; of a kernel without barriers, of a bar."""
        if not self.runs:
            return self.begin[warp].per(max(1, self.launch["bars"]))
        total = timing.Cost()
        for step in steps:
            total += self.steps[step][warp]
        return total.per(max(1, len(steps)))

    @cached_property
    def steady_cycles(self):
        """Of a bar in the steady state, 0 where there is none; a kernel without barriers has no other."""
        if not self.runs:
            return self.prologue_cycles / max(1, self.launch["bars"])
        if not len(self.steady):
            return 0.0
        return sum(map(self.step_cycles, self.steady)) / len(self.steady) / self.launch["tile"]

    @cached_property
    def prologue_cycles(self):
        return max(map(self.cycles_of, self.begin)) + max(map(self.cycles_of, self.end), default=0.0)

    def block_cycles(self, bars):
        """Of a block alone whose symbols have so many bars."""
        walked = self.prologue_cycles + sum(map(self.step_cycles, range(len(self.steps))))
        return walked + (self.steady_cycles * (bars - self.launch["bars"]) if self.whole else 0.0)

    def total(self, bars, name):
        """Sum over all warps and steps of a count, for so many bars."""
        walked = sum(getattr(cost, name) for step in [self.begin, *self.steps] for cost in step)
        if not self.whole or not len(self.steady):
            return walked
        steady = sum(getattr(cost, name) for step in self.steady for cost in self.steps[step]) / len(self.steady)
        return walked + steady * (bars - self.launch["bars"]) / self.launch["tile"]


def walk(launch, code, folder, capability, made=None, units=timing.MANY_UNITS):
    """Runs a launch's kernel. `folder` has NAME.mem.

    Returns a walk for each of the launch's lanes. `made`: per call of the plan its outputs' bytes, which later calls read;
    the launch's are added.
    """
    made = {} if made is None else made
    program = machine.Program(code)
    buffers = machine.memory_of(launch, (Path(folder) / f"{launch['name']}.mem").read_bytes())
    reads_maps = _bind(launch, buffers, made)
    clock = timing.Clock(code, timing.NEAR_BYTES // math.ceil(launch["warps"] / SCHEDULERS), units)
    walks = []
    for lane in launch["lanes"]:
        traces = machine.run(program, launch, capability, buffers, lane)
        pieces = [_between_barriers(trace, program.barriers) for trace in traces]
        walks.append(_walk_of(launch, code, clock, pieces, reads_maps))
    walks[0].differing = _differing(launch, buffers)
    out = buffers[launch["memory"][launch["columns"]]["address"]]
    stride = len(out) // launch["outputs"]
    made[len(made)] = [out[k * stride : (k + 1) * stride] for k in range(launch["outputs"])]
    return walks


def _bind(launch, buffers, made):
    """Puts what earlier calls made where this one reads it; whether maps of chunks are among it, of one row each."""
    maps = False
    for place, read in zip(launch["memory"], launch.get("reads", []), strict=False):
        if read is not None:
            series = made[read[0]][read[1]]
            maps = maps or len(series) == ROW_BYTES
            buffers[place["address"]][: len(series)] = series
    return maps


def _walk_of(launch, code, clock, pieces, reads_maps):
    steps = max(0, len(pieces[0]) - 2)
    if any(len(piece) != len(pieces[0]) for piece in pieces):
        raise sass.SassError(f"{launch['name']}: warps come to barriers a different number of times")
    runs = [[piece[1 + step] for piece in pieces] for step in range(steps)]
    costs = [[clock.cost(run) for run in step] for step in runs]
    begin = [clock.cost(piece[0]) for piece in pieces]
    end = [clock.cost(piece[-1]) for piece in pieces] if len(pieces[0]) > 1 else []
    tiles = math.ceil(launch["bars"] / launch["tile"])
    whole = 0 < tiles <= steps
    # Of every bar the last tiles, else those before the first one of which finite windows are wanted.
    last = (launch["bars"] if launch["every_bar"] else launch["tail"]) // launch["tile"]
    steady = range(max(last // 2, last - STEADY_TILES), last) if whole else range(0)
    return Walk(launch, code, costs, runs, begin, end, steady, whole, reads_maps, clock.units)


def _between_barriers(trace, barriers):
    pieces, piece = [], []
    for block in trace:
        piece.append(block)
        if block in barriers:
            pieces.append(tuple(piece))
            piece = []
    return [*pieces, tuple(piece)]


def _differing(launch, buffers):
    """Outputs whose value is not the CPU's, to the bit."""
    wrong = []
    for number, expected in enumerate(launch["expected"]):
        base = expected["address"] & ~0xFFF_FFFF
        at = expected["address"] & 0xFFF_FFFF
        digits = expected["bits"]
        found = int.from_bytes(buffers[base][at : at + len(digits) // 2], "little")
        if f"{found:0{len(digits)}x}" != digits:
            wrong.append(number)
    return wrong


def launches(folder):
    return json.loads((Path(folder) / "launches.json").read_text())
