"""What instructions do, as Python statements: blocks of machine code become functions that one lane of a warp runs.

Names of a lane's state are those of `operands.py`. Divergence and what only concerns it (BSSY,
BSYNC, WARPSYNC) is left out: one lane has none.
"""

import re

from operands import MASK, Operands, registers_of
from sass import SassError

NOTHING = {"NOP", "BSSY", "BSYNC", "ENDCOLLECTIVE", "WARPSYNC", "YIELD", "BMOV", "BREAK", "MEMBAR", "ERRBAR", "CCTL", "LDGDEPBAR", "DEPBAR",
           "BAR", "FENCE", "UCGABAR_WAIT", "ACQBULK", "PREEXIT", "NANOSLEEP"}  # fmt: skip

COMPARE = {"LT": "<", "LE": "<=", "GT": ">", "GE": ">=", "EQ": "==", "NE": "!="}

BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


class Translator(Operands):
    """Statements for one instruction at a time."""

    def statements(self, i):
        """Python statements for an instruction that does not end a block."""
        name = i.opcode
        if name in NOTHING:
            return []
        method = getattr(self, f"do_{name}", None) or ALIKE.get(name)
        if isinstance(method, str):
            method = getattr(self, f"do_{method}")
        if method is None:
            raise SassError(f"the model does not know the instruction {i.text}")
        return method(i)

    # f64 and f32

    def _double(self, i, expression):
        return [f"_x=bits({expression}); {self.to(i.operands[0])}=_x&{MASK}; {self.to(i.operands[0], 1)}=_x>>32"]

    def do_DADD(self, i):
        a, b = (self.f64(x, i.immediate) for x in i.operands[1:3])
        return self._double(i, f"{a}+{b}")

    def do_DMUL(self, i):
        a, b = (self.f64(x, i.immediate) for x in i.operands[1:3])
        return self._double(i, f"{a}*{b}")

    def do_DFMA(self, i):
        return self._double(i, f"fma({','.join(self.f64(x, i.immediate) for x in i.operands[1:4])})")

    def do_DSETP(self, i):
        return self._compare(i, self.f64)

    def do_FSETP(self, i):
        return self._compare(i, self.f32)

    def _compare(self, i, number):
        to, other, a, b, joined = i.operands[:5]
        kind, join = i.modifiers[0], i.modifiers[-1]
        lines = [f"_a={number(a, i.immediate)}; _b={number(b, i.immediate)}"]
        if kind in ("MAX", "MIN"):
            sign = ">" if kind == "MAX" else "<"
            return [*lines, f"{self.to_predicate(to)}=_a{sign}_b or _b!=_b; {self.to_predicate(other)}=_a!=_a and _b!=_b"]
        return [*lines, f"_c={self._test(kind)}", *self._joined(to, other, joined, join)]

    @staticmethod
    def _test(kind):
        """A comparison of `_a` and `_b`."""
        nan = "(_a!=_a or _b!=_b)"
        if kind == "NAN":
            return nan
        if kind == "NUM":
            return f"(not {nan})"
        if kind == "NEU":
            return "(_a!=_b)"
        if kind == "NE":
            return f"(_a!=_b and not {nan})"
        if kind.endswith("U"):
            return f"(_a{COMPARE[kind[:-1]]}_b or {nan})"
        return f"(_a{COMPARE[kind]}_b)"

    def do_FSET(self, i):
        # 1 or 0 as a float (BF), or all bits.
        to, a, b, joined = i.operands[:4]
        kind, join = (k for k in i.modifiers if k != "BF")
        sign, holds = {"AND": "and", "OR": "or", "XOR": "!="}[join], 0x3F800000 if "BF" in i.modifiers else MASK
        return [f"_a={self.f32(a, i.immediate)}; _b={self.f32(b, i.immediate)}",
                f"{self.to(to)}={holds} if {self._test(kind)} {sign} {self.predicate(joined)} else 0"]  # fmt: skip

    def _joined(self, to, other, joined, join):
        sign = {"AND": "and", "OR": "or", "XOR": "!="}[join]
        return [f"_d={self.predicate(joined)}",
                f"{self.to_predicate(to)},{self.to_predicate(other)}=(_c {sign} _d),((not _c) {sign} _d)"]  # fmt: skip

    def do_FSEL(self, i):
        a, b = (self._bits32(x, i.immediate) for x in i.operands[1:3])
        return [f"{self.to(i.operands[0])}={a} if {self.predicate(i.operands[3])} else {b}"]

    def _bits32(self, operand, immediate):
        if operand.startswith("-") and registers_of(operand[1:]):
            return f"({self.u32(operand[1:])}^0x80000000)"
        if operand.startswith("|"):
            return f"({self.u32(operand.strip('|'))}&0x7fffffff)"
        if registers_of(operand) or operand in ("RZ", "-RZ", "URZ") or operand.startswith("c["):
            return self.u32(operand) if operand != "-RZ" else "0x80000000"
        return str(immediate)

    def _single(self, i, expression):
        return [f"{self.to(i.operands[0])}=bits32({expression})"]

    def do_FADD(self, i):
        return self._single(i, "+".join(self.f32(x, i.immediate) for x in i.operands[1:3]))

    def do_FMUL(self, i):
        return self._single(i, "*".join(self.f32(x, i.immediate) for x in i.operands[1:3]))

    def do_FFMA(self, i):
        a, b, c = (self.f32(x, i.immediate) for x in i.operands[1:4])
        return self._single(i, f"ffma({a},{b},{c})")

    def do_FMNMX(self, i):
        a, b = (self.f32(x, i.immediate) for x in i.operands[1:3])
        least = self.predicate(i.operands[-1])
        return self._single(i, f"(least_f32({a},{b}) if {least} else most_f32({a},{b}))")

    def do_FCHK(self, i):
        a, b = (self._bits32(x, i.immediate) for x in i.operands[1:3])
        return [f"{self.to_predicate(i.operands[0])}=long_division({a},{b})"]

    def do_HFMA2(self, i):
        # Only used to set a register: the product is zero and the sum two halves.
        if [x.strip("-") for x in i.operands[1:3]] != ["RZ", "RZ"]:
            raise SassError(f"the model does not know {i.text}")
        return [f"{self.to(i.operands[0])}={i.immediate}"]

    def do_MUFU(self, i):
        to, x = i.operands[:2]
        if i.modifiers[0].endswith("64H"):
            return [f"{self.to(to)}={i.modifiers[0].lower()}({self.u32(x.strip('-|'))})"]
        return [f"{self.to(to)}=bits32({i.modifiers[0].lower()}({self.f32(x, i.immediate)}))"]

    def do_I2F(self, i):
        to, x = i.operands[:2]
        wide = "S64" in i.modifiers or "U64" in i.modifiers
        unsigned = any(k in ("U64", "U32", "U16", "U8") for k in i.modifiers)
        value = self.u64(x) if wide else self.u32(x)
        if not unsigned:
            value = f"signed64({value})" if wide else f"signed({value})"
        if "F64" in i.modifiers:
            return [self.pair(to, f"bits(float({value}))")]
        return [f"{self.to(to)}=bits32(float({value}))"]

    do_I2FP = do_I2F

    def do_F2I(self, i):
        to, x = i.operands[:2]
        source = self.f64(x, i.immediate) if "F64" in i.modifiers else self.f32(x, i.immediate)
        way = next((k for k in i.modifiers if k in ("TRUNC", "FLOOR", "CEIL")), "ROUND").lower()
        wide = "S64" in i.modifiers or "U64" in i.modifiers
        unsigned = "U32" in i.modifiers or "U64" in i.modifiers
        value = f"whole({source},'{way}',{64 if wide else 32},{unsigned})"
        return [self.pair(to, value)] if wide else [f"{self.to(to)}={value}"]

    def do_FRND(self, i):
        to, x = i.operands[:2]
        way = next((k for k in i.modifiers if k in ("TRUNC", "FLOOR", "CEIL")), "ROUND").lower()
        if "F64" in i.modifiers:
            return self._double(i, f"rounded({self.f64(x, i.immediate)},'{way}')")
        return [f"{self.to(to)}=bits32(rounded({self.f32(x, i.immediate)},'{way}'))"]

    def do_F2F(self, i):
        to, x = i.operands[:2]
        if i.modifiers[0] == "F64":
            return self._double(i, self.f32(x, i.immediate))
        return [f"{self.to(to)}=bits32({self.f64(x, i.immediate)})"]

    # Whole numbers

    def do_MOV(self, i):
        return [f"{self.to(i.operands[0])}={self.u32(i.operands[1])}"]

    def do_CS2R(self, i):
        value = "m.clock()" if "CLOCK" in i.operands[1] else "0"
        if "32" in i.modifiers:
            return [f"{self.to(i.operands[0])}={value}"]
        return [self.pair(i.operands[0], value)]

    def do_S2R(self, i):
        return [f"{self.to(i.operands[0])}=m.special({i.operands[1]!r})"]

    def do_IADD3(self, i):
        operands = list(i.operands)
        to, rest = operands[0], operands[1:]
        carries = []
        while rest and re.match(r"^U?P[T\d]$", rest[0]):
            carries.append(rest.pop(0))
        values, carried = rest[:3], [p for p in rest[3:]]
        terms = "+".join(self.u32(x) for x in values)
        minus = [x.startswith("-") and registers_of(x[1:]) is not None for x in values]
        if "X" in i.modifiers or carries:
            # With carries a minus is a complement, and the one comes with the carry or is added.
            terms = "+".join(self.u32("~" + x[1:] if negated else x) for x, negated in zip(values, minus, strict=True))
            terms += "".join(f"+({self.predicate(p)})" for p in carried) if "X" in i.modifiers else f"+{sum(minus)}"
        lines = [f"_x={terms}; {self.to(to)}=_x&{MASK}"]
        real = [p for p in carries if p not in ("PT", "UPT")]
        lines += [f"{self.predicate(p)}=_x>{MASK * (k + 1) + k}" for k, p in enumerate(real)]
        return lines

    def do_IADD(self, i):
        to, a, b = i.operands[0], *i.operands[-2:]
        return [f"{self.to(to)}={self.u32(a)}+{self.u32(b)}&{MASK}"]

    def do_IMAD(self, i):
        kinds = set(i.modifiers)
        to, rest, carries = i.operands[0], list(i.operands[1:]), []
        while rest and re.match(r"^U?P[T\d]$", rest[0]):
            carries.append(rest.pop(0))
        a, b, c = rest[:3]
        carry = f"+({self.predicate(rest[3])})" if len(rest) > 3 and "X" in kinds else ""
        unsigned = "U32" in kinds
        x, y = (self.u32(a), self.u32(b)) if unsigned else (self.s32(a), self.s32(b))
        if "WIDE" in kinds:
            lines = [self.pair(to, f"{x}*{y}+{self.u64(c)}{carry}")]
            return lines + [f"{self.predicate(p)}=_x>0xffffffffffffffff" for p in carries if p not in ("PT", "UPT")]
        if "HI" in kinds:
            return [f"{self.to(to)}=({x}*{y}+{self.u64(c)}>>32)+0&{MASK}"]
        c = "~" + c[1:] if "X" in kinds and c.startswith("-") and registers_of(c) else c
        if carries and "X" not in kinds:
            raise SassError(f"the model does not know {i.text}")
        return [f"{self.to(to)}={self.u32(a)}*{self.u32(b)}+{self.u32(c)}{carry}&{MASK}"]

    def do_LEA(self, i):
        to, rest, carries = i.operands[0], list(i.operands[1:]), []
        while rest and re.match(r"^U?P[T\d]$", rest[0]):
            carries.append(rest.pop(0))
        if "SX32" in i.modifiers:
            low, add, shift = rest[:3]
            value = f"({self.s32(low)}<<{int(shift, 0)}>>32)+{self.u32(add)}"
            value += f"+({self.predicate(rest[3])})" if len(rest) > 3 and "X" in i.modifiers else ""
        elif "HI" in i.modifiers:
            low, add, high, shift = rest[:4]
            value = f"({self.u64_of(low, high)}<<{int(shift, 0)}>>32)+{self.u32(add)}"
            value += f"+({self.predicate(rest[4])})" if len(rest) > 4 and "X" in i.modifiers else ""
        else:
            low, add, shift = rest[:3]
            value = f"(({self.u32(low)}<<{int(shift, 0)})&{MASK})+{self.u32(add)}"
        lines = [f"_x={value}; {self.to(to)}=_x&{MASK}"]
        return lines + [f"{self.predicate(p)}=_x>{MASK}" for p in carries if p not in ("PT", "UPT")]

    def do_LOP3(self, i):
        operands = list(i.operands)
        p = operands.pop(0) if re.match(r"^U?P[T\d]$", operands[0]) else None
        to, a, b, c, table = operands[:5]
        x, y, z = self.u32(a), self.u32(b), self.u32(c)
        lines = [f"_x={_table(int(table, 0), x, y, z)}; {self.to(to)}=_x"]
        if p and p not in ("PT", "UPT"):
            lines.append(f"{self.predicate(p)}=_x!=0")
        return lines

    def do_PLOP3(self, i):
        to, other, a, b, c, first, second = i.operands[:7]
        a, b, c = (self.predicate(x) for x in (a, b, c))
        lines = [f"_i=({a})<<2|({b})<<1|({c})"]
        lines.append(f"{self.to_predicate(to)}=({int(first, 0)}>>_i&1)==1")
        return [*lines, f"{self.to_predicate(other)}=({int(second, 0)}>>_i&1)==1"]

    def do_ISETP(self, i):
        to, other, a, b, joined = i.operands[:5]
        unsigned = "U32" in i.modifiers
        sign = COMPARE[i.modifiers[0]]
        x, y = (self.u32(a), self.u32(b)) if unsigned else (self.s32(a), self.s32(b))
        test = f"({x}{sign}{y})"
        if "EX" in i.modifiers:
            # The upper halves, where the lower ones have decided if these are equal.
            low = self.predicate(i.operands[5])
            strict = {"<": "<", "<=": "<", ">": ">", ">=": ">"}.get(sign)
            test = f"({x}{strict}{y} or ({x}=={y} and {low}))" if strict else f"({x}=={y} and {low})"
            if sign == "!=":
                test = f"({x}!={y} or {low})"
        return [f"_c={test}", *self._joined(to, other, joined, i.modifiers[-1] if "EX" not in i.modifiers else
                next(k for k in i.modifiers if k in ("AND", "OR", "XOR")))]  # fmt: skip

    def do_SEL(self, i):
        a, b = self.u32(i.operands[1]), self.u32(i.operands[2])
        return [f"{self.to(i.operands[0])}={a} if {self.predicate(i.operands[3])} else {b}"]

    def do_IMNMX(self, i):
        to, a, b, least = i.operands[0], *i.operands[-3:]
        number = self.u32 if "U32" in i.modifiers else self.s32
        x, y = number(a), number(b)
        return [f"{self.to(to)}=(min({x},{y}) if {self.predicate(least)} else max({x},{y}))&{MASK}"]

    def do_VIADDMNMX(self, i):
        to, a, b, c, least = i.operands[0], *i.operands[-4:]
        total, other = f"({self.u32(a)}+{self.u32(b)}&{MASK})", self.u32(c)
        if "U32" not in i.modifiers:
            total, other = f"signed({total})", f"signed({other})"
        return [f"{self.to(to)}=(min({total},{other}) if {self.predicate(least)} else max({total},{other}))&{MASK}"]

    def do_IABS(self, i):
        return [f"{self.to(i.operands[0])}=absolute({self.u32(i.operands[1])})"]

    def do_SHF(self, i):
        to, low, by, high = i.operands[:4]
        kinds = set(i.modifiers)
        count = f"({self.u32(by)}&63)" if kinds & {"U64", "S64"} else f"({self.u32(by)}&31)"
        if "W" not in kinds and not kinds & {"U64", "S64"}:
            count = f"min({self.u32(by)},32)"
        if "L" in kinds:
            whole = f"({self.u32(low)}|{self.u32(high)}<<32)<<{count}"
        elif "S32" in kinds or "S64" in kinds:
            whole = f"({self.u32(low)}|{self.s32(high)}<<32)>>{count}"
        else:
            whole = f"({self.u32(low)}|{self.u32(high)}<<32)>>{count}"
        return [f"{self.to(to)}=({whole}){'>>32' if 'HI' in kinds else ''}&{MASK}"]

    def do_PRMT(self, i):
        to, a, way, b = i.operands[:4]
        return [f"{self.to(to)}=permuted({self.u32(a)},{self.u32(way)},{self.u32(b)})"]

    def do_POPC(self, i):
        return [f"{self.to(i.operands[0])}=({self.u32(i.operands[1])}).bit_count()"]

    def do_FLO(self, i):
        shift = "SH" in i.modifiers
        return [f"{self.to(i.operands[0])}=leading({self.u32(i.operands[1])},{shift})"]

    def do_BREV(self, i):
        return [f"{self.to(i.operands[0])}=int(f'{{{self.u32(i.operands[1])}:032b}}'[::-1],2)"]

    def do_P2R(self, i):
        return [f"{self.to(i.operands[0])}=sum(P[_k]<<_k for _k in range(7))&{self.u32(i.operands[-1])}"]

    def do_R2P(self, i):
        return [f"_x={self.u32(i.operands[1])}; _y={self.u32(i.operands[2])}",
                "P[:7]=[(_x>>_k&1)==1 if _y>>_k&1 else P[_k] for _k in range(7)]"]  # fmt: skip

    def do_VOTE(self, i):
        # Lanes agree with this one.
        operands = list(i.operands)
        value = self.predicate(operands[-1])
        if registers_of(operands[0]) or operands[0] in ("RZ", "URZ"):
            to = operands.pop(0)
            lines = [f"{self.to(to)}={MASK} if {value} else 0"]
        else:
            lines = []
        p = operands[0]
        return lines + ([f"{self.to_predicate(p)}={value}"] if len(operands) > 1 else [])

    # Memory

    def do_LDC(self, i):
        count = 4 if "128" in i.modifiers else 2 if "64" in i.modifiers else 1
        return [f"{self.to(i.operands[0], k)}={self.u32(i.operands[1], k)}" for k in range(count)]

    def _load(self, i, space):
        size = next((BYTES[k] for k in i.modifiers if k in BYTES), 4)
        to, where = i.operands[0], self.address(i.operands[-1])
        if size < 4:
            value = f"m.load_{space}({where},{size})"
            if "S8" in i.modifiers or "S16" in i.modifiers:
                value = f"extended({value},{8 * size})"
            return [f"{self.to(to)}={value}"]
        lines = [f"_x=m.load_{space}({where},{size})"]
        return lines + [f"{self.to(to, k)}=_x>>{32 * k}&{MASK}" for k in range(size // 4)]

    def _store(self, i, space):
        size = next((BYTES[k] for k in i.modifiers if k in BYTES), 4)
        where, value = self.address(i.operands[-2]), i.operands[-1]
        base = registers_of(value)
        parts = [f"R[{base[1] + k}]<<{32 * k}" if base else "0" for k in range(max(size // 4, 1))]
        return [f"m.store_{space}({where},{size},{'|'.join(parts)})"]

    def do_LDS(self, i):
        return self._load(i, "shared")

    def do_STS(self, i):
        return self._store(i, "shared")

    def do_LDL(self, i):
        return self._load(i, "local")

    def do_STL(self, i):
        return self._store(i, "local")

    def do_LDG(self, i):
        return self._load(i, "global")

    def do_STG(self, i):
        return self._store(i, "global")

    def do_LDGSTS(self, i):
        size = next((BYTES[k] for k in i.modifiers if k in BYTES), 4)
        to, source = self.address(i.operands[0]), self.address(i.operands[1])
        return [f"m.copy({to},{source},{size})"]

    def do_QSPC(self, i):
        space = i.modifiers[-1]
        return [f"{self.to_predicate(i.operands[0])}=m.is_of({self.address(i.operands[-1])},{space!r})"]


def _table(table, x, y, z):
    """A function of three bits as operations on words."""
    known = {0xC0: f"{x}&{y}", 0xFC: f"{x}|{y}", 0x3C: f"{x}^{y}", 0x33: f"~{y}&{MASK}", 0x0F: f"~{x}&{MASK}",
             0xF8: f"{x}|{y}&{z}", 0xEA: f"{x}&{y}|{z}", 0x30: f"{x}&~{y}", 0x0C: f"~{x}&{y}", 0x80: f"{x}&{y}&{z}", 0xFE: f"{x}|{y}|{z}"}  # fmt: skip
    if table in known:
        return f"({known[table]})"
    return f"looked_up({table},{x},{y},{z})"


# Instructions that do to uniform registers, or by another unit, what another does.
ALIKE = {
    "VIADD": "IADD", "UIADD3": "IADD3", "UIMAD": "IMAD", "ULEA": "LEA", "ULOP3": "LOP3", "UISETP": "ISETP", "USEL": "SEL",
    "USHF": "SHF", "UMOV": "MOV", "R2UR": "MOV", "S2UR": "S2R", "ULDC": "LDC", "LDCU": "LDC", "UPLOP3": "PLOP3",
    "UPRMT": "PRMT", "UPOPC": "POPC", "UFLO": "FLO", "UBREV": "BREV", "VIMNMX": "IMNMX", "VOTEU": "VOTE", "LD": "LDG",
    "ST": "STG", "UIADD": "IADD", "UIMNMX": "IMNMX", "VIMNMX3": "IMNMX", "UI2F": "I2F",
}  # fmt: skip
