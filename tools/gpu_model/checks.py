"""What machine code must not hold: products and sums in one rounding that nobody wrote, accesses whose kind of memory the
hardware has to find out."""

from operands import registers_of

# Instructions whose result is a rough reciprocal (root): what is computed from it by DFMA is a division (square root).
ROUGH = ("RCP64H", "RSQ64H")

MOVES = {"MOV", "IMAD", "VIADD", "IADD3", "LOP3", "SEL", "FSEL"}

# Upper halves of 0, 1 and -1, as whole numbers and as nvdisasm shows them where a number of 32 bits is selected.
UNITS = {"RZ", "1.875", "-1.875", "0x3ff00000", "-0x40100000", "0xbff00000"}


def unexplained_dfma(code):
    """DFMA that are part of no division, no square root and no product with its error, in the order of the code.

    With contraction switched off a DFMA is one of these, a rough quotient's (`fma` written out), or a sum with a product by 0, 1
    or -1, which is exact. Code is read from top to
    bottom; what comes from other blocks is unknown, so a few remain unexplained: their number is what is held.
    """
    subroutines = sorted(code.subroutines.values())
    own = [i for i in code.instructions if not subroutines or i.address < subroutines[0]]
    writer = {}
    unexplained = []
    made = {}
    for i in own:
        sources = [registers_of(x) for x in i.operands[1:]]
        rough = i.opcode == "MUFU" and i.modifiers[0] in ROUGH
        rough = rough or any(made.get(writer.get(s), {}).get("rough") for s in sources if s)
        rough = rough or any(made.get(writer.get((s[0], s[1] + 1)), {}).get("rough") for s in sources if s)
        values = [o for o in i.operands[1:] if not o.lstrip("!").startswith(("P", "UP"))]
        unit = i.opcode in {"MOV", "SEL", "FSEL"} or (i.opcode == "IMAD" and "MOV" in i.modifiers)
        unit = unit and all(v in UNITS or made.get(writer.get(registers_of(v)), {}).get("unit") for v in values)
        made[i.address] = {"unit": unit, "rough": rough and i.opcode in {"MUFU", "DFMA", "DMUL", *MOVES}, "of": None}
        if i.opcode == "DMUL":
            made[i.address]["of"] = {writer.get(s, s) if s else x for s, x in zip(sources, i.operands[1:], strict=True)}
        if i.opcode == "DFMA" and not rough:
            factors = {writer.get(s, s) if s else x for s, x in zip(sources[:2], i.operands[1:3], strict=True)}
            addend = made.get(writer.get(sources[2]), {}).get("of") if sources[2] else None
            high = [writer.get((s[0], s[1] + 1)) for s in sources[:2] if s]
            exact = any(made.get(w, {}).get("unit") for w in high)
            if not exact and not (addend and addend & factors):
                unexplained.append(i)
        to = registers_of(i.operands[0]) if i.operands else None
        if to:
            wide = i.opcode in ("DADD", "DMUL", "DFMA") or "64" in i.modifiers or "WIDE" in i.modifiers
            for k in range(4 if "128" in i.modifiers else 2 if wide else 1):
                writer[to[0], to[1] + k] = i.address
    return unexplained
