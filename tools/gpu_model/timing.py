"""How long a warp takes for the instructions between two barriers.

Latencies of instructions without a fixed one are assumed, those with one are in the code (stall counts). Each constant says
which measurement it was set by; measurements are of an H100 SXM at 1.98 GHz, 2026-11-22.
"""

from dataclasses import dataclass

from sass import INSTRUCTION_BYTES, NO_SCOREBOARD, SCOREBOARDS

F64 = {"DADD", "DMUL", "DFMA", "DSETP"}
SHARED = {"LDS", "STS"}
GENERIC = {"LD", "ST"}
GLOBAL = {"LDG", "STG"}

# Cycles until a result is written, by opcode; published figures for this generation, not calibrated.
WRITTEN = {
    "LDS": 29, "LD": 38, "LDL": 38, "LDG": 480, "LDC": 28, "LDCU": 28, "ULDC": 12, "S2R": 25, "S2UR": 25, "MUFU": 24, "I2F": 16, "F2I": 16,
    "F2F": 16, "FRND": 16, "R2UR": 12, "POPC": 16, "FLO": 16, "QSPC": 24,
}  # fmt: skip
WRITTEN_OTHERWISE = 12

# Cycles until the operands of a store have been read.
READ = 10

# Cycles from a copy into shared memory to its end.
COPIED = 800

# Conversions from and to f64, which take the units of f64 where these are few.
CONVERSIONS = {"F2F", "I2F", "F2I", "FRND"}

# Cycles until a result of f64 is written where a multiprocessor has two such units; assumed.
FEW_UNITS_WRITTEN = 48


@dataclass(frozen=True)
class F64Units:
    """Cycles that an instruction of a warp takes of a scheduler's units of f64, or of the few that all schedulers share."""

    cycles: int
    are_shared: bool = False

    def has(self, instruction):
        """Whether an instruction takes them."""
        of_f64 = "F64" in instruction.modifiers and instruction.opcode in CONVERSIONS
        return instruction.opcode in F64 or self.are_shared and of_f64


# 16 lanes a cycle and scheduler; two lanes a cycle and multiprocessor.
MANY_UNITS = F64Units(2)
FEW_UNITS = F64Units(16, are_shared=True)

# Cycles that a taken branch, a call or a return adds to its stall count; published figures, not calibrated.
TAKEN = 14
CALLED = 25

# Cycles from the last warp at a barrier to the first one behind it.
BARRIER = 25

# Instruction caches: bytes of a line, of the cache of one scheduler and of that of a multiprocessor. The last is set by: W1 at
# every bar goes through 62 KiB and shows no misses there, Adaptive Trend Classification through 133 KiB and does.
LINE = 128
NEAR_BYTES = 12 * 1024
FAR_BYTES = 64 * 1024

# Cycles for a line that the near cache lacks and the far one has.
# Set by: the recursive share of W1 as a loop of 1,280 instructions (20 KB) without a branch in one warp, 285 cycles a bar.
NEAR_MISS = 0.38
# Cycles for a line that both lack. Set by: Adaptive Trend Classification, 51 blocks, 27.62 ms. Instruction caches are the
# suspected cause, not a proven one: whatever else slows that kernel down is in this figure.
FAR_MISS = 88.0


@dataclass
class Cost:
    """Of some instructions of one warp: cycles without misses, instructions issued, those of f64, bytes of shared memory,
    generic and local accesses, bytes of global memory, lines of code, and those that the near cache lacks; cycles and
    instructions until copies were begun."""

    cycles: float = 0.0
    instructions: int = 0
    f64: int = 0
    shared_bytes: int = 0
    generic: int = 0
    local: int = 0
    global_bytes: int = 0
    lines: int = 0
    near_misses: int = 0
    fetch_cycles: float = 0.0
    fetch_instructions: int = 0

    def __iadd__(self, other):
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    def per(self, count):
        """The mean of so many."""
        return Cost(**{name: getattr(self, name) / count for name in self.__dataclass_fields__})


def _bytes_of(instruction):
    size = next((int(k) // 8 for k in instruction.modifiers if k in ("64", "128")), 4)
    return 32 * size


class Clock:
    """Costs of runs of blocks of one kernel; equal runs are timed once. `near_bytes`: a warp's share of its scheduler's cache."""

    def __init__(self, code, near_bytes=NEAR_BYTES, units=MANY_UNITS):
        self.blocks = code.blocks
        self.units = units
        self.near_lines = max(1, near_bytes // LINE)
        self.known = {}

    def cost(self, run):
        """Of a tuple of blocks, from one barrier to the next, as if it were done again and again."""
        if run not in self.known:
            cost = self._time(run)
            cost.lines = len(self.lines(run))
            cost.near_misses = self._near_misses(run)
            self.known[run] = cost
        return self.known[run]

    def lines(self, run):
        """Lines of code that a run touches."""
        touched = set()
        for first in set(run):
            block = self.blocks[first].instructions
            touched.update(range(block[0].address // LINE, block[-1].address // LINE + 1))
        return touched

    def _near_misses(self, run):
        """Lines fetched by a least-recently-used cache that holds what the run before it left."""
        cache, misses = {}, 0
        for again in (False, True):
            for first in run:
                block = self.blocks[first].instructions
                for line in range(block[0].address // LINE, block[-1].address // LINE + 1):
                    if line in cache:
                        del cache[line]
                    else:
                        misses += again
                        if len(cache) >= self.near_lines:
                            del cache[next(iter(cache))]
                    cache[line] = None
        return misses

    def _time(self, run):
        cost = Cost()
        now, copied = 0.0, 0.0
        written, pipe = [0.0] * SCOREBOARDS, 0.0
        after = None
        for first in run:
            instructions = self.blocks[first].instructions
            if after is not None and first != after:
                now += TAKEN
            for i in instructions:
                if i.waits:
                    now = max([now, *(written[k] for k in range(SCOREBOARDS) if i.waits >> k & 1)])
                of_f64 = self.units.has(i)
                if of_f64:
                    now = max(now, pipe)
                    pipe = now + self.units.cycles
                    cost.f64 += 1
                elif i.opcode in SHARED:
                    cost.shared_bytes += _bytes_of(i)
                elif i.opcode in GENERIC:
                    cost.generic += 1
                elif i.opcode in ("LDL", "STL"):
                    cost.local += 1
                elif i.opcode in GLOBAL:
                    cost.global_bytes += _bytes_of(i)
                elif i.opcode == "LDGSTS":
                    copied = now + COPIED
                elif i.opcode == "LDGDEPBAR":
                    cost.fetch_cycles, cost.fetch_instructions = now, cost.instructions
                elif i.opcode == "DEPBAR":
                    now = max(now, copied)
                elif i.opcode in ("CALL", "RET"):
                    now += CALLED
                latency = WRITTEN.get(i.opcode, WRITTEN_OTHERWISE)
                if of_f64 and self.units.are_shared:
                    latency = max(latency, FEW_UNITS_WRITTEN)
                if i.writes != NO_SCOREBOARD:
                    written[i.writes] = max(written[i.writes], now + latency)
                if i.reads != NO_SCOREBOARD:
                    written[i.reads] = max(written[i.reads], now + min(latency, READ))
                cost.instructions += 1
                now += max(1, i.stall)
            after = instructions[-1].address + INSTRUCTION_BYTES
        cost.cycles = now
        return cost
