"""The figures of a walked launch, and estimates of how long a scan takes on a device."""

import math
from dataclasses import dataclass

import block
import checks
import timing

# Symbols of a block.
BLOCK_SYMBOLS = 32

# Bytes of shared memory that the system takes of each block; registers are given out by 256 a warp.
RESERVED_SHARED_BYTES = 1024
REGISTERS_STEP = 256

# What warps see of each other's and of the hardware's choices is not modelled: a factor.
# Set by: W1, 4,224 symbols (one block a multiprocessor), 1.597 ms.
UNSEEN = 1.09


# Bars of a chunk of a long history, as in chunks.rs. Microseconds from a kernel's end to the next one's begin, assumed.
CHUNK_BARS = 840
LAUNCH_US = 3.0

# Microseconds from a read of the host's memory to its answer beyond those of the device's own, assumed.
HOST_READ_US = 1.2


@dataclass(frozen=True)
class Device:
    """Multiprocessors, GHz, bytes a second of a copy; of a multiprocessor: registers, bytes of shared memory, warps, blocks,
    units of f64; bytes a second to and from the host (data sheet of the bus, times 0.85)."""

    name: str
    multiprocessors: int
    ghz: float
    bytes_per_s: float
    shared_bytes: int
    registers: int = 65_536
    warps: int = 64
    blocks: int = 32
    units: timing.F64Units = timing.MANY_UNITS
    host_bytes_per_s: float = 0.85 * 32e9


# By compute capability. The H100's clock and copy are measured, the others' are of data sheets, the copy 0.85 of the sheet's.
DEVICES = {
    80: [Device("A100 SXM (data sheet)", 108, 1.41, 0.85 * 2.04e12, 164 * 1024)],
    89: [Device("L4 (data sheet)", 58, 2.04, 0.85 * 0.30e12, 100 * 1024, 65_536, 48, 24, timing.FEW_UNITS),
         Device("L40S (data sheet)", 142, 2.52, 0.85 * 0.864e12, 100 * 1024, 65_536, 48, 24, timing.FEW_UNITS),
         Device("RTX 4090 (data sheet)", 128, 2.52, 0.85 * 1.008e12, 100 * 1024, 65_536, 48, 24, timing.FEW_UNITS)],
    90: [Device("H100 SXM", 132, 1.98, 3.00e12, 228 * 1024, host_bytes_per_s=0.85 * 64e9)],
    100: [Device("B200 (data sheet)", 148, 1.97, 0.85 * 8.0e12, 228 * 1024, host_bytes_per_s=0.85 * 64e9)],
}  # fmt: skip


def resident_blocks(launch, device):
    """Blocks that a multiprocessor takes at once."""
    warps = launch["warps"]
    registers = math.ceil(launch["registers"] * 32 / REGISTERS_STEP) * REGISTERS_STEP * warps
    return max(1, min(device.registers // registers, device.warps // warps, device.blocks,
                      device.shared_bytes // (launch["shared_bytes"] + RESERVED_SHARED_BYTES)))  # fmt: skip


def busy_cycles(walk, bars):
    """Cycles that a block takes of a multiprocessor's four schedulers and f64 pipes: of the mean, and of the busiest one."""
    share = [0.0] * block.SCHEDULERS
    of_f64, units = walk.units.cycles * walk.total(bars, "f64"), walk.units
    for warp in range(walk.launch["warps"]):
        part = walk.part(warp, walk.steady if len(walk.steady) else range(len(walk.steps)))
        own = 0 if units.are_shared else units.cycles * part.f64
        share[warp % block.SCHEDULERS] += max(part.instructions, own)
    mean = max(walk.total(bars, "instructions"), 0 if units.are_shared else of_f64) / block.SCHEDULERS
    busiest = mean * max(share) / max(sum(share) / block.SCHEDULERS, 1e-9)
    return (max(mean, of_f64), max(busiest, of_f64)) if units.are_shared else (mean, busiest)


def wave_cycles(walk, bars, resident):
    """Cycles of so many blocks side by side on a multiprocessor: the path of one, which waits for the others' busiest
    scheduler, or what all keep the schedulers busy for."""
    alone = UNSEEN * walk.block_cycles(bars)
    mean, busiest = busy_cycles(walk, bars)
    return max(alone + (resident - 1) * busiest, resident * mean)


def milliseconds(walk, device, symbols, bars):
    """Of a launch over so many symbols: full waves and the rest, or the bytes read and written at the device's bandwidth."""
    blocks = math.ceil(symbols / BLOCK_SYMBOLS)
    slots = resident_blocks(walk.launch, device)
    full, rest = divmod(blocks, slots * device.multiprocessors)
    cycles = full * wave_cycles(walk, bars, slots)
    if rest:
        cycles += wave_cycles(walk, bars, math.ceil(rest / device.multiprocessors))
    if walk.is_one_bar:
        # The states that it reads and writes; the bars and values, which are the host's, are a part of it.
        return max(1e3 * blocks * walk.total(bars, "global_bytes") / device.bytes_per_s, 1e-6 * cycles / device.ghz)
    moved = column_bytes(walk, symbols, walk.bars_read(bars)) + output_bytes(walk, symbols, bars)
    return max(1e3 * moved / device.bytes_per_s, 1e-6 * cycles / device.ghz)


def column_bytes(walk, symbols, bars):
    return walk.launch["number_bytes"] * symbols * walk.launch["columns"] * bars


def output_bytes(walk, symbols, bars):
    return walk.launch["number_bytes"] * symbols * walk.launch["outputs"] * (bars if walk.launch["every_bar"] else 1)


def one_bar_us(walk, device, symbols):
    """Microseconds of one new bar of every symbol: until the kernel begins and has its bars, the bars' way to the device, the
    kernel over bars that are there, the values' way to the host. Added up, as if nothing overlapped."""
    lanes = BLOCK_SYMBOLS * math.ceil(symbols / BLOCK_SYMBOLS)
    # A flag of four bytes beside each symbol's bars.
    told = lanes * (walk.launch["number_bytes"] * walk.launch["columns"] + 4)
    values = lanes * walk.launch["number_bytes"] * walk.launch["outputs"]
    return {
        "launch_us": LAUNCH_US + HOST_READ_US,
        "bars_us": rounded(1e6 * told / device.host_bytes_per_s),
        "kernel_us": rounded(1e3 * milliseconds(walk, device, symbols, 1)),
        "values_us": rounded(1e6 * values / device.host_bytes_per_s),
    }


def chunks_of(bars):
    return math.ceil(bars / CHUNK_BARS)


def map_cycles(walks):
    """What each warp takes for the map of an earlier chunk. `walks`: of two lanes of narrow chunks, which differ by the maps
    of the chunks between them."""
    few, many = walks
    between = many.launch["lanes"][1] - many.launch["lanes"][0]
    return [max(0.0, many.cycles_of(after) - few.cycles_of(before)) / between for before, after in zip(few.begin, many.begin, strict=True)]


def chunk_milliseconds(walks, device, chunks, narrow=None):
    """Of one kernel over chunks side by side, in one wave: it takes as long as the last chunk's lane. `walks`: of the first
    lanes. `narrow`: of a kernel that reads maps, the lanes that show what a map costs; the last lane goes through those of
    all chunks before it. That the last few are read one by one is not counted: 7 at most."""
    last = walks[-1]
    cycles = last.block_cycles(last.launch["bars"])
    if narrow:
        more = chunks - len(walks)
        cycles = max(last.cycles_of(own) + more * one for own, one in zip(last.begin, map_cycles(narrow), strict=True))
    return 1e-6 * UNSEEN * cycles / device.ghz + 1e-3 * LAUNCH_US


def rounded(x):
    """Three digits: figures are kept as text, and more digits say nothing."""
    return 0 if x == 0 else round(x, max(0, 2 - math.floor(math.log10(abs(x)))))


def figures(walk, device, ms, symbols, bars):
    """What is kept of a launch over so many symbols (or chunks) that takes `ms` milliseconds. `memory_ms`: what all bars of its columns,
    and its values, take at the device's bandwidth. Cycles, instructions and bytes are those of a bar; see docs/gpu.md."""
    launch, tile = walk.launch, walk.launch["tile"]
    steady = walk.steady
    # Steps on whole tiles of which finite windows are wanted.
    tiles = launch["bars"] // tile
    tail = range(steady.stop, tiles) if len(steady) else range(min(len(walk.steps), tiles - launch["tail"] // tile))
    if walk.is_one_bar:
        # All steps of the one bar.
        steady, tail, tile = range(len(walk.steps)), range(0), 1 / max(1, len(walk.steps))
    parts = []
    for warp in range(launch["warps"]):
        part = walk.part(warp, steady)
        after = walk.part(warp, tail)
        parts.append({
            "cycles": rounded(walk.cycles_of(part) / tile),
            "instructions": rounded(part.instructions / tile),
            "f64": rounded(part.f64 / tile),
            "shared_bytes": rounded(part.shared_bytes / tile),
            "fetch_cycles": rounded(part.fetch_cycles / tile),
            "tail_cycles": rounded(walk.cycles_of(after) / tile),
        })  # fmt: skip
    every = [walk.part(warp, steady) for warp in range(launch["warps"])]
    slots = resident_blocks(launch, device)
    blocks = math.ceil(symbols / BLOCK_SYMBOLS)
    return {
        "ms": rounded(ms),
        "memory_ms": rounded(1e3 * (column_bytes(walk, symbols, bars) + output_bytes(walk, symbols, bars)) / device.bytes_per_s),
        "cycles": rounded(walk.block_cycles(1) if walk.is_one_bar else walk.steady_cycles),
        "parts": parts,
        "registers": launch["registers"],
        "shared_bytes": launch["shared_bytes"],
        "resident_blocks": slots,
        "waves": math.ceil(blocks / (slots * device.multiprocessors)),
        "code_bytes": 16 * len(walk.code.instructions),
        "hot_bytes": walk.hot_bytes,
        "generic": rounded(sum(part.generic for part in every) / tile),
        "local": rounded(sum(part.local for part in every) / tile),
        "spilled_bytes": launch["spilled_bytes"],
        "contractions": len(checks.unexplained_dfma(walk.code)),
        "wrong_outputs": len(walk.differing),
        **(one_bar_us(walk, device, symbols) if walk.is_one_bar else {}),
        **({"doubles": sum(i.opcode in timing.F64 for i in walk.code.instructions)} if launch["number_bytes"] == 4 else {}),
    }
