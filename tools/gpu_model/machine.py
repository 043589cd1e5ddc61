"""Runs a kernel's machine code for one lane of each warp of a block, to see which way it goes.

One lane suffices: lanes are symbols, none reads what another made, and a warp that goes both ways is rare. What the other
lanes bring into shared memory is brought with this lane's copy: neighbours copy neighbouring pieces.
"""

import ctypes
import ctypes.util
import math
import struct

from operands import MASK
from sass import GLOBALS_AT, INSTRUCTION_BYTES, SassError
from semantics import Translator

LANES = 32

# Where ptxas puts the first argument in bank 0, by compute capability.
PARAMETERS = {80: 0x160, 89: 0x160, 90: 0x210, 100: 0x380}

# Where the driver puts the number of a block's threads.
THREADS = {80: 0x0, 89: 0x0, 90: 0x0, 100: 0x360}

# Where the driver puts the stack's end, by compute capability.
STACK_POINTER = {80: 0x28, 89: 0x28, 90: 0x28, 100: 0x37C}

# The upper half of a generic address within shared memory; up to 8.0 the whole address of its begin is a constant.
SHARED_WINDOW = 0x7E00_0000
SHARED_WINDOW_AT = 0x18
LOCAL_WINDOW = 0x7D00_0000
LOCAL_BYTES = 1 << 14
SHARED_BYTES = 1 << 18

# A kernel that goes on for longer than so many blocks of instructions does not end.
BLOCKS_MAX = 300_000

_libm = ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")
fma = _libm.fma
fma.restype = ctypes.c_double
fma.argtypes = [ctypes.c_double] * 3
# Sums and products of f32 are exact enough in f64 to be rounded once more; a product and a sum are not.
ffma = _libm.fmaf
ffma.restype = ctypes.c_float
ffma.argtypes = [ctypes.c_float] * 3

_two, _one, _word, _real = struct.Struct("<II"), struct.Struct("<d"), struct.Struct("<I"), struct.Struct("<f")


def double(low, high):
    return _one.unpack(_two.pack(low, high))[0]


def bits(x):
    return int.from_bytes(_one.pack(x), "little")


def single(word):
    return _real.unpack(_word.pack(word))[0]


def bits32(x):
    try:
        return _word.unpack(_real.pack(x))[0]
    except OverflowError:
        return 0x7F800000 if x > 0 else 0xFF800000


def signed(x):
    return x - 0x1_0000_0000 if x & 0x8000_0000 else x


def signed64(x):
    return x - (1 << 64) if x >> 63 else x


def absolute(x):
    return -signed(x) & MASK if x & 0x8000_0000 else x


def extended(x, count):
    return (x - (1 << count) if x >> (count - 1) else x) & MASK


def permuted(a, way, b):
    source = (a | b << 32).to_bytes(8, "little")
    out = 0
    for k in range(4):
        pick = way >> 4 * k & 15
        byte = source[pick & 7]
        if pick & 8:
            byte = 255 if byte & 128 else 0
        out |= byte << 8 * k
    return out


def leading(x, shift):
    if x == 0:
        return MASK
    return 32 - x.bit_length() if shift else x.bit_length() - 1


def looked_up(table, x, y, z):
    out = 0
    for k in range(8):
        if table >> k & 1:
            term = (x if k & 4 else ~x) & (y if k & 2 else ~y) & (z if k & 1 else ~z)
            out |= term
    return out & MASK


def rounded(x, way):
    if not math.isfinite(x):
        return x
    whole_part = {"trunc": math.trunc, "floor": math.floor, "ceil": math.ceil, "round": round}[way](x)
    return math.copysign(float(whole_part), x)


def whole(x, way, count, unsigned):
    """As the device converts: NaN is the least of 64 bits and 0 of 32, what is too large the largest."""
    least, most = (0, (1 << count) - 1) if unsigned else (-(1 << count - 1), (1 << count - 1) - 1)
    if x != x:
        return (1 << 63 if count == 64 else 0) if not unsigned else 0
    if math.isinf(x):
        return (most if x > 0 else least) & ((1 << count) - 1)
    return max(least, min(most, int(rounded(x, way)))) & ((1 << count) - 1)


def rcp64h(high):
    """Upper half of an approximate reciprocal; as the unit's, right to some 23 bits."""
    x = double(0, high)
    if x == 0.0 or abs(x) < 2.0**-1022:
        return high & 0x8000_0000 | 0x7FF0_0000
    return bits(1.0 / x) >> 32


def rsq64h(high):
    x = double(0, high)
    if x == 0.0 or abs(x) < 2.0**-1022:
        return high & 0x8000_0000 | 0x7FF0_0000
    return bits(1.0 / math.sqrt(x)) >> 32 if x > 0 else 0x7FF8_0000


def rcp(x):
    return 1.0 / x if x else math.copysign(math.inf, x)


def rsq(x):
    if x == 0.0:
        return math.copysign(math.inf, x)
    return 1.0 / math.sqrt(x) if x > 0 else math.nan


def sqrt(x):
    return math.sqrt(x) if x >= 0 else math.nan


def long_division(a, b):
    """Whether a division of f32 has to take the long way: an operand or the quotient is not far from the ends of the range."""
    exponents = [x >> 23 & 255 for x in (a, b)]
    return any(e < 24 or e > 230 for e in exponents) or not -100 < exponents[0] - exponents[1] < 100


def least_f32(a, b):
    return b if a != a else a if b != b else min(a, b)


def most_f32(a, b):
    return b if a != a else a if b != b else max(a, b)


def constant(memory, bank, offset):
    return memory.constant(bank, offset)


HELPERS = {name: value for name, value in globals().items() if callable(value)}


class Memory:
    """What a lane sees: constants, shared and global memory (shared by warps), its own local memory, special registers."""

    def __init__(self, launch, capability, shared, buffers, banks):
        self.shared = shared
        self.buffers = buffers
        self.local = bytearray(LOCAL_BYTES)
        self.bank = bytearray(PARAMETERS[capability]) + bytes.fromhex(launch["arguments"])
        struct.pack_into("<III", self.bank, THREADS[capability], launch["threads"], 1, 1)
        struct.pack_into("<I", self.bank, STACK_POINTER[capability], LOCAL_BYTES)
        struct.pack_into("<II", self.bank, SHARED_WINDOW_AT, 0, SHARED_WINDOW)
        # The compiler's own constants lie in other banks; bank 0 is the launch's.
        self.banks = {**banks, 0: self.bank}
        self.warp = 0
        self.lane = 0

    def constant(self, bank, offset):
        if bank not in self.banks or offset + 4 > len(self.banks[bank]):
            return 0
        return struct.unpack_from("<I", self.banks[bank], offset)[0]

    def clock(self):
        return 0

    def special(self, name):
        known = {"SR_TID.X": self.warp * LANES + self.lane, "SR_LANEID": self.lane, "SR_SWINHI": SHARED_WINDOW, "SR_LWINHI": LOCAL_WINDOW,
                 "SR_CTAID.X": 0, "SR_CgaCtaId": 0, "SR_TID.Y": 0, "SR_TID.Z": 0, "SR_CTAID.Y": 0, "SR_CTAID.Z": 0}  # fmt: skip
        if name not in known:
            raise SassError(f"the model does not know the register {name}")
        return known[name]

    def load_shared(self, address, size):
        return int.from_bytes(self.shared[address : address + size], "little")

    def store_shared(self, address, size, value):
        self.shared[address : address + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")

    def load_local(self, address, size):
        return int.from_bytes(self.local[address : address + size], "little")

    def store_local(self, address, size, value):
        self.local[address : address + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")

    def _place(self, address):
        window = address >> 32
        if window == SHARED_WINDOW:
            return self.shared, address & MASK
        if window == LOCAL_WINDOW:
            return self.local, address & MASK
        base = address & ~0xFFF_FFFF
        if base not in self.buffers:
            raise SassError(f"an access to {address:#x}, where nothing lies")
        return self.buffers[base], address & 0xFFF_FFFF

    def load_global(self, address, size):
        buffer, at = self._place(address)
        return int.from_bytes(buffer[at : at + size], "little")

    def store_global(self, address, size, value):
        buffer, at = self._place(address)
        if at + size > len(buffer):
            raise SassError(f"a store to {address:#x}, behind the end of a buffer")
        buffer[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")

    def copy(self, to, source, size):
        """Copies of all lanes: each its piece, side by side."""
        buffer, at = self._place(source - self.lane * size)
        piece = buffer[at : at + size * LANES]
        at = to - self.lane * size
        if at + len(piece) <= len(self.shared):
            self.shared[at : at + len(piece)] = piece

    def is_of(self, address, space):
        return (space == "S") == (address >> 32 == SHARED_WINDOW)


class Program:
    """A kernel's code as functions of Python. `blocks`: address to function, that of the block that follows comes back; -1 at
    the end. Blocks that a barrier ends are in `barriers`."""

    def __init__(self, code):
        self.code = code
        self.barriers = {first for first, block in code.blocks.items() if block.instructions[-1].opcode == "BAR"}
        self.blocks = {}
        self._translate(code.blocks.values())

    def _translate(self, blocks):
        translator, text = Translator(), []
        for block in blocks:
            text.append(f"def block_{block.first}(R, U, P, Q, m):")
            for instruction in block.instructions:
                text += self._lines(translator, instruction)
            after = block.instructions[-1].address + INSTRUCTION_BYTES
            text.append(f"    return {after}")
        names = dict(HELPERS)
        exec(compile("\n".join(text), self.code.name, "exec"), names)
        self.blocks.update({block.first: names[f"block_{block.first}"] for block in blocks})

    def enter(self, address):
        """The block that begins at an address which only a table of jumps names: the rest of the one that it is in."""
        if address not in self.blocks:
            block = self.code.split(address)
            if block.instructions[-1].opcode == "BAR":
                self.barriers.add(address)
            self._translate([block])
        return self.blocks[address]

    @staticmethod
    def _lines(translator, instruction):
        guard = translator.predicate(instruction.guard) if instruction.guard else None
        if instruction.opcode == "BRA" and "DIV" in instruction.modifiers:
            # Taken where the lanes of a warp have parted, which one lane never does.
            lines = []
        elif instruction.ends_block and instruction.opcode != "BAR":
            lines = [f"return {Program._where(translator, instruction)}"]
            if instruction.opcode == "BRA" and len(instruction.operands) > 1:
                more = translator.predicate(instruction.operands[0])
                guard = f"{guard} and {more}" if guard else more
        else:
            lines = translator.statements(instruction)
        if not lines:
            return []
        if guard:
            return [f"    if {guard}:", *(f"        {line}" for line in lines)]
        return [f"    {line}" for line in lines]

    @staticmethod
    def _where(translator, instruction):
        if instruction.opcode in ("BRA", "CALL"):
            return instruction.target
        if instruction.opcode == "EXIT":
            return -1
        if instruction.opcode == "RET":
            return translator.u32(instruction.operands[0].split(" ")[0])
        if instruction.opcode == "BRX":
            # Relative to the next instruction.
            register, _, offset = instruction.operands[0].partition(" ")
            after = instruction.address + INSTRUCTION_BYTES + int(offset or "0", 0)
            return f"{translator.s32(register)}+{after}"
        raise SassError(f"the model does not know the instruction {instruction.text}")


def memory_of(launch, image):
    """The launch's buffers by address. `image`: their bytes, one after another."""
    places = launch["memory"]
    return {p["address"]: bytearray(image[p["offset"] : p["offset"] + p["bytes"]]) for p in places}


def run(program, launch, capability, buffers, lane=0):
    """Runs one lane of all warps of a block, in turns at barriers, and writes what they write into `buffers`.

    Returns per warp its blocks in order.
    """
    shared = bytearray(SHARED_BYTES)
    buffers[GLOBALS_AT] = bytearray(program.code.tables)
    warps = []
    for number in range(launch["warps"]):
        memory = Memory(launch, capability, shared, buffers, program.code.banks)
        memory.warp, memory.lane = number, lane
        warps.append(_Warp(program, memory))
    while any(warp.at >= 0 for warp in warps):
        for warp in warps:
            warp.until_barrier()
    return [warp.trace for warp in warps]


class _Warp:
    def __init__(self, program, memory):
        self.program = program
        self.state = ([0] * 264, [0] * 72, [False] * 7, [False] * 7, memory)
        self.at = next(iter(program.blocks))
        self.trace = []

    def until_barrier(self):
        at, blocks, barriers, trace = self.at, self.program.blocks, self.program.barriers, self.trace
        state, most = self.state, BLOCKS_MAX
        while at >= 0:
            trace.append(at)
            here, at = at, (blocks.get(at) or self.program.enter(at))(*state)
            if here in barriers:
                break
            most -= 1
            if most < 0:
                raise SassError("the kernel does not end")
        self.at = at
