"""Documents of scans, drawn from a seed. Each is drawn again later, so that equal scans can be compared."""

import json

POOL = 200  # documents of a kind from which scans are drawn
REPLACED_PER_MINUTE = 50  # of them, so that what is kept by document has to be bounded
LONG_COLUMNS = 12  # of a document above 2 KiB, which goes to the result store
LARGE_COLUMNS = 256  # of a document with a large answer
ROW_BYTES = 8 * LARGE_COLUMNS + 64  # of its answer, about: a symbol at a point of the sweep

PLAIN = (
    "close > sma(close, {a}) and rsi(close, {b}) < {c}",
    "crosses_above(ema(close, {b}), ema(close, {a})) or roc(close, {b}) > {b}",
    "close >= highest(high, {a}) or close <= lowest(low, {a})",
    "within(crosses_above(sma(close, {b}), sma(close, {a})), {b}) and volume > lowest(volume, {a}) * 2",
    "atr({b}) / close > 0.0{b} or bbands(close, {a}).upper < close",
)
CROSS = (
    "xs_rank(roc(close, {a})) <= {c} and close > sma(close, {b})",
    "xs_pct(rsi(close, {b})) > 0.{c} or xs_z(roc(close, {a})) > 1",
    "xs_z(close / sma(close, {a})) > 0.{c} and breadth(close > sma(close, {b})) > 0.1",
)


class Documents:
    """Pools of documents that change slowly."""

    def __init__(self, dataset, draws):
        self.dataset, self.draws = dataset, draws
        self.pools = {kind: [self.make(kind) for _ in range(POOL)] for kind in ("plain", "cross", "long")}

    def json(self, **clauses):
        return json.dumps({"dataset": self.dataset, **clauses}, separators=(",", ":"))

    def make(self, kind):
        draws = self.draws
        a, b, c = draws.randint(20, 120), draws.randint(3, 19), draws.randint(25, 75)
        condition = draws.choice(CROSS if kind == "cross" else PLAIN).format(a=a, b=b, c=c)
        select = ["close", f"rsi(close, {b}) as strength"]
        for number in range(LONG_COLUMNS if kind == "long" else 0):
            terms = (f"sma(close, {draws.randint(5, 60)}) / {draws.randint(2, 9)}" for _ in range(9))
            select.append(f"{' + '.join(terms)} as column_{number}")
        return self.json(where=condition, rank="roc(close, 21) desc", select=select)

    def sweep(self):
        """A document whose scan takes long, for the moment of the kill."""
        lengths = {"from": 5 + self.draws.randint(0, 9), "to": 150, "step": 1}
        return self.json(where="close > ema(close, n)", select=["ema(close, n) as mean"], sweep={"n": lengths})

    def large(self, number, size, symbols):
        """One of several documents whose answers have about so many bytes and little to compute."""
        select = [f"(close / sma(close, {5 + number + column}) - 1) * n as column_{column}" for column in range(LARGE_COLUMNS)]
        points = {"from": 1, "to": max(1, round(size / (symbols * ROW_BYTES))), "step": 1}
        return self.json(where="true", select=select, sweep={"n": points})

    def draw(self, kind):
        return self.draws.choice(self.pools[kind])

    def replace(self, seconds):
        """Replaces as many documents as are due after `seconds`."""
        whole, rest = divmod(REPLACED_PER_MINUTE * seconds / 60, 1)
        for _ in range(int(whole) + (self.draws.random() < rest)):
            kind = self.draws.choice(list(self.pools))
            self.pools[kind][self.draws.randrange(POOL)] = self.make(kind)
