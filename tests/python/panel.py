#!/usr/bin/env python3
"""`trawl panel` against the same table computed here with NumPy from exported bars, and against bars whose future was changed.

    panel.py --trawl FILE
"""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq

from checks import Check, executable

HORIZONS = [1, 5, 20]
WINDOW = 4
EMBARGO = 7
FOLDS = 3
FEATURES = {
    "mom": "close / close[5] - 1",
    "avg": "sma(close, 20)",
    "top": "highest(high, 10)",
    "up": "close > sma(close, 20)",
    "size": "volume",
}
CONDITION = "close > close[3]"
# Dataset, first and last day of the panel, first day of the test, whether closes are exported split-adjusted.
PANELS = [
    ("us5", "2010-06-01", "2012-10-01", "2012-01-03", "none"),
    ("demo", "2021-03-01", "2023-06-30", "2022-09-01", "split"),
]
BROKEN_AT = "2012-03-01"


def rolled(values, length, of):
    found = np.full(len(values), np.nan)
    if len(values) >= length:
        found[length - 1 :] = of(np.lib.stride_tricks.sliding_window_view(values, length), axis=1)
    return found


def lagged(values, bars):
    return np.concatenate([np.full(min(bars, len(values)), np.nan), values[: len(values) - bars]])


def features_of(bars):
    """Feature -> values at every bar of a symbol; conditions 1, 0 or NaN."""
    close = bars["close"]
    average = rolled(close, 20, np.mean)
    return {
        "mom": close / lagged(close, 5) - 1,
        "avg": average,
        "top": rolled(bars["high"], 10, np.max),
        "up": np.where(np.isnan(average), np.nan, close > average),
        "size": bars["volume"],
    }


class Market:
    """Exported bars, and what the panel has of them."""

    def __init__(self, run, dataset, adjusted, folder):
        def export(adjust):
            path = folder / f"{dataset}.{adjust}.csv"
            run("data", "export", dataset, "--output", str(path), "--adjust", adjust)
            symbols = {}
            with path.open(newline="") as file:
                for row in csv.DictReader(file):
                    symbols.setdefault(row["symbol"], []).append(row)
            return {
                symbol: {
                    "time": np.array([row["time"][:10] for row in rows]),
                    **{name: np.array([float(row[name] or "nan") for row in rows]) for name in ("high", "close", "volume")},
                }
                for symbol, rows in symbols.items()
            }

        self.bars = export("none")
        self.closes = {symbol: of["close"] for symbol, of in export(adjusted).items()}
        self.times = sorted({time for of in self.bars.values() for time in of["time"]})
        self.number = {time: at for at, time in enumerate(self.times)}

    def rows(self, first, last):
        """(time, symbol) -> columns, in the order of the panel."""
        found = {}
        for symbol, of in self.bars.items():
            features, close = features_of(of), self.closes[symbol]
            matched = close_above(of["close"])
            for at, time in enumerate(of["time"]):
                if not first <= time <= last:
                    continue
                row = {name: values[at] for name, values in features.items()} | {"matched": bool(matched[at])}
                for horizon in HORIZONS:
                    row[f"forward_{horizon}"] = close[at + horizon] / close[at] - 1 if at + horizon < len(close) else np.nan
                row["reads_until"] = self.number[of["time"][min(at + HORIZONS[-1], len(close) - 1)]]
                found[time, symbol] = row
        return dict(sorted(found.items()))

    def uses(self, rows, first, last):
        """What each row is used for, tested from `first` to `last`."""
        a, b = self.number[first], self.number[last]
        # Every bar of the test counts, whether it is a row or not: all are, here.
        tested = [row["reads_until"] for (time, _), row in rows.items() if a <= self.number[time] <= b]
        until = max(tested)
        found = []
        for (time, _), row in rows.items():
            at, end = self.number[time], row["reads_until"]
            if a <= at <= b:
                found.append("test")
            elif (at < a and end >= a) or (at > b and at <= until):
                found.append("purged")
            elif (at < a and end >= a - EMBARGO) or (at > b and at <= until + EMBARGO):
                found.append("embargoed")
            else:
                found.append("train")
        return np.array(found)


def close_above(close):
    before = lagged(close, 3)
    return np.where(np.isnan(before), False, close > before)


def column(table, name):
    found = table.column(name)
    if pa.types.is_boolean(found.type):
        return np.array([np.nan if value is None else float(value) for value in found.to_pylist()])
    if pa.types.is_timestamp(found.type):
        return np.array([value.strftime("%Y-%m-%d") for value in found.to_pylist()])
    return np.array(found.to_pylist() if pa.types.is_string(found.type) else found.to_numpy(zero_copy_only=False))


def clauses(dataset, first, last):
    arguments = ["panel", "--dataset", dataset, "--where", CONDITION, "--from", first, "--to", last, "--quiet"]
    for name, text in FEATURES.items():
        arguments += ["--select", f"{text} as {name}"]
    return arguments


def compare_panel(run, check, folder, panel):
    dataset, first, last, test, adjusted = panel
    market = Market(run, dataset, adjusted, folder)
    rows = market.rows(first, last)
    keys = np.array(list(rows))
    want = {name: np.array([float(row[name]) for row in rows.values()]) for name in next(iter(rows.values()))}
    asked = [*clauses(dataset, first, last), "--forward", "20,1,5"]
    own = [time for time in market.times if first <= time <= last]

    plain = folder / "plain.parquet"
    run(*asked, "--split", test, "--embargo", str(EMBARGO), "--output", str(plain))
    table = pq.read_table(plain)
    names = ["time", "symbol", *FEATURES, "matched", *(f"forward_{h}" for h in HORIZONS), "split"]
    if table.column_names != names:
        check.fail(f"columns {table.column_names}, expected {names}")
    for name in ("up", "matched"):
        if table.schema.field(name).type != pa.bool_():
            check.fail(f"{name} is {table.schema.field(name).type}")
    check.same(f"{dataset} time", column(table, "time"), keys[:, 0])
    check.same(f"{dataset} symbol", column(table, "symbol"), keys[:, 1])
    for name in names[2:-1]:
        check.same(f"{dataset} {name}", column(table, name), want[name])
    start = next(time for time in own if time >= test)
    uses = market.uses(rows, start, own[-1])
    check.same(f"{dataset} split", column(table, "split"), uses)
    if set(uses) != {"train", "test", "purged", "embargoed"}:
        check.fail(f"{dataset}: only {set(uses)}")

    run(*asked, "--folds", str(FOLDS), "--embargo", str(EMBARGO), "--output", str(folder / "folds.csv"))
    folds = pa.csv.read_csv(folder / "folds.csv")
    for fold in range(FOLDS):
        part = own[len(own) * fold // FOLDS : len(own) * (fold + 1) // FOLDS]
        check.same(f"{dataset} fold {fold + 1}", column(folds, f"split_{fold + 1}"), market.uses(rows, part[0], part[-1]))
    check.same(f"{dataset} as CSV", column(folds, "mom"), want["mom"])

    run(*asked, "--matches-only", "--output", str(folder / "matches.arrow"))
    with pa.ipc.open_file(folder / "matches.arrow") as file:
        matches = file.read_all()
    matched = want["matched"] == 1
    check.same(f"{dataset} matches", column(matches, "forward_5"), want["forward_5"][matched])
    check.same(f"{dataset} symbols of matches", column(matches, "symbol"), keys[matched, 1])

    run(*asked, "--wide", "--output", str(folder / "wide.parquet"))
    symbols = sorted(market.bars)
    for name in (*FEATURES, "matched", "forward_5"):
        frame = pq.read_table(folder / f"wide.{name}.parquet")
        if frame.column_names != ["time", *symbols]:
            check.fail(f"{dataset} wide {name}: columns {frame.column_names}")
        absent = 0.0 if name == "matched" else np.nan
        wide = np.full((len(own), len(symbols)), absent)
        for (time, symbol), row in rows.items():
            wide[own.index(time), symbols.index(symbol)] = row[name]
        check.same(f"{dataset} wide {name}", np.stack([column(frame, symbol) for symbol in symbols], axis=1), wide)

    scaled = folder / "scaled.parquet"
    tensors = folder / "tensors"
    options = ["--split", test, "--embargo", str(EMBARGO), "--scaler", str(folder / "scaler.json")]
    run(*asked, *options, "--output", str(scaled), "--tensors", str(tensors), "--window", str(WINDOW))
    scaler = json.loads((folder / "scaler.json").read_text())["features"]
    check.same(f"{dataset} scaled features", np.array([of["name"] for of in scaler]), np.array([n for n in FEATURES if n != "up"]))
    table, scale = pq.read_table(scaled), {}
    for of in scaler:
        known = want[of["name"]][(uses == "train") & ~np.isnan(want[of["name"]])]
        scale[of["name"]] = (known.mean(), known.std())
        check.same(f"{dataset} scaler {of['name']}", [of["count"], of["mean"], of["standard_deviation"]], [len(known), *scale[of["name"]]])
        check.same(f"{dataset} scaled {of['name']}", column(table, of["name"]), (want[of["name"]] - known.mean()) / known.std(), 1e-8)
    check.same(f"{dataset} unscaled up", column(table, "up"), want["up"])
    check.same(f"{dataset} labels are not scaled", column(table, "forward_1"), want["forward_1"])
    compare_tensors(check, market, tensors, keys, want, scale, uses)


def compare_tensors(check, market, folder, keys, want, scale, uses):
    """Windows over the times of the dataset, the last of which is the sample's own."""
    grids = {}
    for symbol, of in market.bars.items():
        grid = np.full((len(market.times), len(FEATURES)), np.nan)
        at = [market.number[time] for time in of["time"]]
        for number, (name, values) in enumerate(features_of(of).items()):
            mean, deviation = scale.get(name, (0, 1))
            grid[at, number] = (values - mean) / deviation
        grids[symbol] = grid
    windows = np.stack([grids[symbol][market.number[time] - WINDOW + 1 : market.number[time] + 1] for time, symbol in keys])
    features, mask = np.load(folder / "features.npy"), np.load(folder / "mask.npy")
    check.same("mask", mask, ~np.isnan(windows))
    check.same("tensors", features, np.nan_to_num(windows).astype(np.float32), 1e-5)
    if features.dtype != np.float32 or mask.dtype != bool:
        check.fail(f"tensors of {features.dtype}, masks of {mask.dtype}")
    labels = np.stack([want[f"forward_{h}"] for h in HORIZONS], axis=1)
    check.same("labels", np.load(folder / "labels.npy"), labels)
    with (folder / "index.csv").open(newline="") as file:
        index = list(csv.DictReader(file))
    check.same("index", np.array([(row["time"][:10], row["symbol"]) for row in index]), keys)
    check.same("split of samples", np.array([row["split"] for row in index]), uses)


def leaks(before, after, until):
    """Names of columns that differ at or before a time between two panels with the same keys up to it."""
    count = [sum(time <= until for time in column(table, "time")) for table in (before, after)]
    if count[0] != count[1]:
        return {"time"}
    found = set()
    for name in before.column_names:
        a, b = (column(table, name)[: count[0]] for table in (before, after))
        equal = a == b if a.dtype.kind != "f" else a.view(np.int64) == b.view(np.int64)
        both = equal if a.dtype.kind != "f" else equal | (np.isnan(a) & np.isnan(b))
        if not np.all(both):
            found.add(name)
    return found


def compare_futures(run, check, folder):
    """Changes or shifts every bar after a time: nothing that a model may see at or before it may change."""
    run("data", "export", "us5", "--output", str(folder / "own.csv"), "--adjust", "none")
    with (folder / "own.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    noise = np.random.default_rng(23)
    found = {}
    for kind in ("own", "changed", "shifted"):
        changed, last = [], {}
        for row in rows:
            row, prices = dict(row), ("open", "high", "low", "close", "volume")
            own = {name: row[name] for name in prices}
            if row["time"][:10] > BROKEN_AT:
                if kind == "changed":
                    factor = noise.uniform(0.5, 2)
                    row |= {name: repr(float(row[name]) * factor) for name in prices if row[name]}
                if kind == "shifted":
                    row |= last.get(row["symbol"], own)
            last[row["symbol"]] = own
            changed.append(row)
        with (folder / f"{kind}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(changed)
        run("data", "import", str(folder / f"{kind}.csv"), "--dataset", kind, "--timeframe", "1d")
        output, tensors = folder / f"{kind}.parquet", folder / f"{kind}.tensors"
        ranked = ["--select", "xs_rank(roc(20)) as ranked", "--select", "tf('1w', close) as week", "--select", "rsi(14) as rsi"]
        options = ["--forward", "1,5", "--output", str(output), "--tensors", str(tensors), "--window", str(WINDOW)]
        run(*clauses(kind, "2011-06-01", "2012-10-01"), *ranked, *options)
        found[kind] = (pq.read_table(output), np.load(tensors / "features.npy"), np.load(tensors / "mask.npy"))
    features = {*FEATURES, "ranked", "week", "rsi"}
    own, own_tensors, own_mask = found["own"]
    known = sum(time <= BROKEN_AT for time in column(own, "time"))
    for kind in ("changed", "shifted"):
        table, tensors, mask = found[kind]
        seen = leaks(own, table, BROKEN_AT)
        check.compared += known * len(own.column_names)
        if seen & (features | {"time", "symbol", "matched"}):
            check.fail(f"{kind}: features at or before {BROKEN_AT} changed: {seen}")
        if seen != {"forward_1", "forward_5"}:
            check.fail(f"{kind}: the labels before it had to change, and nothing else: {seen}")
        if not np.array_equal(tensors[:known], own_tensors[:known]) or not np.array_equal(mask[:known], own_mask[:known]):
            check.fail(f"{kind}: windows that end at or before {BROKEN_AT} changed")
        if np.array_equal(tensors[known:], own_tensors[known:]):
            check.fail(f"{kind}: no window after it changed: the test shows nothing")
    # The check itself notices a feature that reads the next bar, and windows that end at it.
    symbols = len(set(column(own, "symbol")))
    for kind in ("changed", "shifted"):
        table, tensors, _ = found[kind]
        planted = [replaced(of, "mom", np.roll(column(of, "mom"), -symbols)) for of in (own, table)]
        if "mom" not in leaks(*planted, BROKEN_AT):
            check.fail("a feature of the next bar was not noticed")
        if np.array_equal(np.roll(tensors, -symbols, axis=0)[:known], np.roll(own_tensors, -symbols, axis=0)[:known]):
            check.fail("windows that end at the next bar were not noticed")


def replaced(table, name, values):
    at = table.column_names.index(name)
    return table.set_column(at, name, pa.array(values))


def main():
    check = Check()
    with executable() as (run, folder):
        for panel in PANELS:
            compare_panel(run, check, folder, panel)
        compare_futures(run, check, folder)
    print(f"{check.compared} values compared, {check.wrong} checks failed")
    raise SystemExit(check.wrong > 0 or check.compared < 100_000)


if __name__ == "__main__":
    main()
