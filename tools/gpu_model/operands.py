"""Operands of instructions as Python expressions: registers, constants, predicates and addresses.

State of a lane: `R` and `U` (registers and uniform registers, whole numbers of 32 bits), `P` and `Q` (predicates and uniform
ones), `m` (memory, `machine.Memory`). Values of f64 are a pair of registers.
"""

import re

from sass import SassError

MASK = 0xFFFFFFFF

_INDEX = re.compile(r"^(U?)R(Z|\d+)$")
_CONSTANT = re.compile(r"^c\[(0x[0-9a-f]+)\]\[(?:(U?R\w+)\+?)?(-?0x[0-9a-f]+)?\]$")
_ADDRESS = re.compile(r"^\[(.*)\]$")

def registers_of(operand):
    """Name and number of a register operand, without its sign; none for others."""
    found = _INDEX.match(operand.strip("-~|!").split(".")[0].strip("|"))
    if not found or found.group(2) == "Z":
        return None
    return ("U" if found.group(1) else "R"), int(found.group(2))


class Operands:
    """Expressions for one operand at a time."""

    def u32(self, operand, high=0):
        """A whole number of 32 bits; with `high` that of so many registers further."""
        operand = operand.split(".")[0] if not operand.startswith(("c[", "0x", "-0x")) else operand
        if operand.startswith("-"):
            return f"(-{self.u32(operand[1:], high)}&{MASK})"
        if operand.startswith("~"):
            return f"(~{self.u32(operand[1:], high)}&{MASK})"
        if operand.startswith("|"):
            return f"absolute({self.u32(operand.strip('|'), high)})"
        if operand in ("RZ", "URZ", "SRZ"):
            return "0"
        if found := _INDEX.match(operand):
            return f"{'U' if found.group(1) else 'R'}[{int(found.group(2)) + high}]"
        if found := _CONSTANT.match(operand):
            base = f"{self.u32(found.group(2))}+" if found.group(2) else ""
            offset = int(found.group(3) or "0", 16) + 4 * high
            return f"constant(m,{int(found.group(1), 16)},{base}{offset})"
        try:
            return str((int(operand, 0) >> 32 * high) & MASK)
        except ValueError:
            raise SassError(f"unknown operand {operand}") from None

    def s32(self, operand):
        return f"signed({self.u32(operand)})"

    def u64(self, operand):
        if operand.startswith("-"):
            return f"(-{self.u64(operand[1:])}&0xffffffffffffffff)"
        if operand.startswith(("0x", "-0x")):
            return f"({int(operand, 0)}&0xffffffffffffffff)"
        return f"({self.u32(operand)}|{self.u32(operand, 1)}<<32)"

    def u64_of(self, low, high):
        return f"({self.u32(low)}|{self.u32(high)}<<32)"

    def f64(self, operand, immediate):
        """A number of 64 bits; as an immediate its upper half is given."""
        if operand.startswith("-") and (registers_of(operand[1:]) or operand[1] in "|Rc"):
            return f"-{self.f64(operand[1:], immediate)}"
        if operand.startswith("|"):
            return f"abs({self.f64(operand.strip('|'), immediate)})"
        if operand in ("RZ", "URZ"):
            return "0.0"
        if registers_of(operand) or operand.startswith("c["):
            return f"double({self.u32(operand)},{self.u32(operand, 1)})"
        return f"double(0,{immediate})"

    def f32(self, operand, immediate):
        if operand.startswith("-") and (registers_of(operand[1:]) or operand[1] in "|Rc"):
            return f"-{self.f32(operand[1:], immediate)}"
        if operand.startswith("|"):
            return f"abs({self.f32(operand.strip('|'), immediate)})"
        if operand in ("RZ", "URZ"):
            return "0.0"
        if registers_of(operand) or operand.startswith("c["):
            return f"single({self.u32(operand)})"
        return f"single({immediate})"

    def predicate(self, operand):
        if operand.startswith("!"):
            return f"(not {self.predicate(operand[1:])})"
        if operand in ("PT", "UPT"):
            return "True"
        if found := re.match(r"^(U?)P(\d)$", operand):
            return f"{'Q' if found.group(1) else 'P'}[{found.group(2)}]"
        raise SassError(f"unknown predicate {operand}")

    @staticmethod
    def to(operand, offset=0):
        """Where a result goes; RZ takes anything."""
        found = registers_of(operand)
        if found is None:
            return "_"
        return f"{found[0]}[{found[1] + offset}]"

    def to_predicate(self, operand):
        return "_" if operand in ("PT", "UPT") else self.predicate(operand)

    def pair(self, operand, value):
        """Statement that writes 64 bits."""
        return f"_x={value}; {self.to(operand)}=_x&{MASK}; {self.to(operand, 1)}=_x>>32&{MASK}"

    def address(self, operand):
        """Address and whether it has 64 bits."""
        operand = operand[operand.index("]") + 1 :] if operand.startswith("desc") else operand
        inside = _ADDRESS.match(operand)
        if not inside:
            raise SassError(f"unknown address {operand}")
        terms, wide = [], False
        for term in inside.group(1).replace("+-", "+(-)").split("+"):
            term = term.replace("(-)", "-")
            name, _, kind = term.partition(".")
            if kind.startswith("64"):
                wide = True
                terms.append(self.u64(name))
            elif kind.startswith("X"):
                terms.append(f"({self.u32(name)}*{kind[1:]})")
            elif registers_of(name) or name in ("RZ", "URZ"):
                terms.append(self.u32(name))
            else:
                terms.append(str(int(term, 0)))
        text = "+".join(terms).replace("+-", "-")
        return f"({text}&{'0xffffffffffffffff' if wide else MASK})"
