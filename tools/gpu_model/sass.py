"""Machine code of a CUBIN as instructions: text, control word, basic blocks.

The text is nvdisasm's; the control word is decoded from the encoding (bits 105 to 121 of an instruction's 128): the cycles
until the warp's next instruction (stall), whether another warp is preferred (yield), the scoreboards that are set until the
result is written and until the operands are read, and those that are waited for.
"""

import re
import struct
import subprocess
from dataclasses import dataclass, field

INSTRUCTION_BYTES = 16

# Where the tables of a module lie in the walk's global memory, and the constant bank that has their addresses.
GLOBALS_AT = 0x7000_0000_0000
ADDRESS_BANK = 4
SCOREBOARDS = 6
NO_SCOREBOARD = 7

_SECTION = re.compile(r"^//-+ \.text\.(\S+)\s+-+")
_LABEL = re.compile(r"^\s*([.$\w]+):\s*$")
_FIRST = re.compile(r"^\s+/\*([0-9a-f]{4,6})\*/\s+(.*?)\s*;\s*/\* 0x([0-9a-f]{16}) \*/")
_SECOND = re.compile(r"^\s+/\* 0x([0-9a-f]{16}) \*/")
_GUARD = re.compile(r"^@(!?)(U?P\w+)\s+(.*)$")
_BANK = re.compile(r"^\.nv\.constant(\d+)\.(.+)$")
_TARGET = re.compile(r"`\(([^)]+)\)")


class SassError(Exception):
    """Code that cannot be read."""


@dataclass
class Instruction:
    """One instruction. `address` is its place in the section, in bytes; `immediate` the 32 bits that operands may hold."""

    address: int
    text: str
    opcode: str
    modifiers: tuple
    operands: list
    guard: str
    immediate: int
    stall: int
    prefers_other: bool
    writes: int
    reads: int
    waits: int
    target: int = -1

    @property
    def ends_block(self):
        return self.opcode in ENDS


# After these another block begins. A barrier ends a block so that warps can take turns there.
ENDS = {"BRA", "EXIT", "RET", "CALL", "BAR", "BRX", "SYNCS"}


@dataclass
class Block:
    """Instructions that run one after another."""

    first: int
    instructions: list = field(default_factory=list)


@dataclass
class Code:
    """A kernel's function: its name, blocks by the address of their first instruction, the addresses of subroutines, the
    constants that the compiler put into banks."""

    name: str
    instructions: list
    blocks: dict
    subroutines: dict
    banks: dict = field(default_factory=dict)
    # Tables of the module in global memory, which lie at `GLOBALS_AT`.
    tables: bytes = b""

    def split(self, address):
        """Makes a block of the instructions from an address to the end of the block that they are in."""
        for block in self.blocks.values():
            rest = [i for i in block.instructions if i.address >= address]
            if rest and rest[0].address == address:
                self.blocks[address] = Block(address, rest)
                return self.blocks[address]
        raise SassError(f"{self.name}: a jump to {address:#x}, where no instruction is")


def disassemble(nvdisasm, cubin):
    """The text of a CUBIN's functions, with encodings."""
    run = subprocess.run([nvdisasm, "-hex", "-c", "-ndf", cubin], capture_output=True, text=True)
    if run.returncode != 0:
        raise SassError(f"nvdisasm {cubin}: {run.stderr.strip()}")
    return run.stdout


def sections(cubin):
    """Name and bytes of each section of a CUBIN, in their order (Elf64_Shdr)."""
    table, size, count, names_at = struct.unpack_from("<Q", cubin, 0x28)[0], *struct.unpack_from("<HHH", cubin, 0x3A)
    heads = [(struct.unpack_from("<I", cubin, table + k * size)[0], *struct.unpack_from("<QQ", cubin, table + k * size + 24))
             for k in range(count)]  # fmt: skip
    names = [heads[names_at][1] + name_at for name_at, _, _ in heads]
    return [(cubin[begin : cubin.index(0, begin)].decode(), cubin[place : place + length])
            for begin, (_, place, length) in zip(names, heads, strict=True)]  # fmt: skip


def constants(cubin):
    """Bytes of the constant banks that the compiler fills, by function and bank: sections `.nv.constantBANK.FUNCTION`."""
    found = {}
    for name, data in sections(cubin):
        if match := _BANK.match(name):
            found.setdefault(match.group(2), {})[int(match.group(1))] = data
    return found


def tables(cubin):
    """The module's tables in global memory, and the bank of their addresses: what the driver does when it loads the code."""
    all_sections = sections(cubin)
    named = dict(all_sections)
    addresses, symbols = bytearray(named.get(".nv.constant4", b"")), named.get(".symtab", b"")
    image = named.get(".nv.global.init", b"")
    # Elf64_Rela, or before 9.0 Elf64_Rel, whose addend is in the place itself; Elf64_Sym.
    added, plain = named.get(".rela.nv.constant4", b""), named.get(".rel.nv.constant4", b"")
    entries = list(struct.iter_unpack("<QQq", added))
    entries += [(place, info, struct.unpack_from("<Q", addresses, place)[0]) for place, info in struct.iter_unpack("<QQ", plain)]
    for place, info, addend in entries:
        section, value = struct.unpack_from("<HQ", symbols, (info >> 32) * 24 + 6)
        if all_sections[section][0] == ".nv.global.init":
            struct.pack_into("<Q", addresses, place, GLOBALS_AT + value + addend)
    return bytes(addresses), image


def split_operands(text):
    """Operands of an instruction, at the commas that are in no brackets."""
    operands, depth, begin = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "[(") - (sign in "])")
        if sign == "," and depth == 0:
            operands.append(text[begin:at].strip())
            begin = at + 1
    last = text[begin:].strip()
    return operands + [last] if last else operands


def _instruction(address, text, low, high):
    control = high >> 41
    guard, body = "", text
    if found := _GUARD.match(text):
        guard, body = found.group(1) + found.group(2), found.group(3)
    opcode, _, rest = body.partition(" ")
    opcode, *modifiers = opcode.split(".")
    operands = [operand.replace(".reuse", "") for operand in split_operands(rest)]
    return Instruction(
        address=address, text=text, opcode=opcode, modifiers=tuple(modifiers), operands=operands, guard=guard,
        immediate=low >> 32, stall=control & 15, prefers_other=control >> 4 & 1 == 0, writes=control >> 5 & 7,
        reads=control >> 8 & 7, waits=control >> 11 & 63)  # fmt: skip


def read(nvdisasm, cubin):
    """The functions of a CUBIN (`functions`), with their constants. `cubin`: its path."""
    found = functions(disassemble(nvdisasm, str(cubin)))
    image = cubin.read_bytes()
    addresses, data = tables(image)
    for name, banks in constants(image).items():
        if name in found:
            found[name].banks = {**banks, ADDRESS_BANK: addresses}
            found[name].tables = data
    return found


def functions(listing):
    """The functions of a listing (`disassemble`), by their sections' names: the kernel and what it calls."""
    found, labels, pending = {}, {}, []
    section, instructions = None, []
    for line in listing.splitlines():
        if match := _SECTION.match(line):
            section, instructions = match.group(1), []
            found[section] = instructions
            pending = []
        elif match := _FIRST.match(line):
            address = int(match.group(1), 16)
            for label in pending:
                labels[section, label] = address
            pending = []
            instructions.append((address, match.group(2), int(match.group(3), 16)))
        elif (match := _SECOND.match(line)) and instructions and len(instructions[-1]) == 3:
            address, text, low = instructions[-1]
            instructions[-1] = _instruction(address, text, low, int(match.group(1), 16))
        elif match := _LABEL.match(line):
            pending.append(match.group(1))
    if not found:
        raise SassError("no code in the listing")
    return {name: _code(name, code, {label: at for (of, label), at in labels.items() if of == name})
            for name, code in found.items()}  # fmt: skip


def _code(name, instructions, labels):
    firsts = {instructions[0].address} | set(labels.values())
    for instruction in instructions:
        if instruction.ends_block:
            firsts.add(instruction.address + INSTRUCTION_BYTES)
            named = _TARGET.search(instruction.text)
            if named and instruction.opcode in ("BRA", "CALL"):
                label = named.group(1)
                if label not in labels and label != name:
                    raise SassError(f"{name}: {instruction.text} goes to an unknown place")
                instruction.target = labels.get(label, 0)
                firsts.add(instruction.target)
    blocks, block = {}, None
    for instruction in instructions:
        if instruction.address in firsts:
            block = Block(instruction.address)
            blocks[block.first] = block
        block.instructions.append(instruction)
    subroutines = {label: at for label, at in labels.items() if label.startswith("$")}
    return Code(name, instructions, blocks, subroutines)
