#!/usr/bin/env python3
"""`trawl panel` and `trawl study` against what a user of pandas writes for the same: rolling windows, shifts and groups.

    pandas_history.py --trawl FILE

Neither the features, the matches nor the returns are taken from Trawl; of Trawl are the exported bars alone.
"""

import json

import numpy as np
import pandas as pd

from checks import Check, executable

HORIZONS = [1, 5, 20]
# Dataset, first and last day, how closes are exported for returns, which label groups a study.
CASES = [
    ("us5", "2009-06-01", "2012-10-01", "none", None),
    ("demo", "2021-03-01", "2023-06-30", "split", "sector"),
]
FEATURES = {
    "momentum": "roc(close, 10)",
    "mean": "sma(close, 20)",
    "deviation": "stddev(close, 20)",
    "middle": "median(close, 15)",
    "highest": "highest(high, 30)",
    "stretch": "zscore(close, 20)",
    "standing": "xs_pct(roc(close, 10))",
    "turnover": "sum(close * volume, 5)",
    "up": "close > sma(close, 20)",
}
CONDITION = "close > highest(high, 20)[1] and volume > sma(volume, 20)"


def of_pandas(bars, closes):
    """The table of a panel before it is cut to a span: features, the condition and the returns of every bar."""
    table = bars.sort_values(["symbol", "time"]).reset_index(drop=True)
    symbols = table.groupby("symbol")

    def by_symbol(name, of):
        return symbols[name].transform(of)

    table["momentum"] = 100 * by_symbol("close", lambda x: x.pct_change(10, fill_method=None))
    table["mean"] = by_symbol("close", lambda x: x.rolling(20).mean())
    table["deviation"] = by_symbol("close", lambda x: x.rolling(20).std(ddof=0))
    table["middle"] = by_symbol("close", lambda x: x.rolling(15).median())
    table["highest"] = by_symbol("high", lambda x: x.rolling(30).max())
    table["stretch"] = (table["close"] - table["mean"]) / table["deviation"]
    days = table.groupby("time")["momentum"]
    table["standing"] = (days.rank() - 0.5) / days.transform("count")
    table["turnover"] = (table["close"] * table["volume"]).groupby(table["symbol"]).transform(lambda x: x.rolling(5).sum())
    table["up"] = (table["close"] > table["mean"]).where(table["mean"].notna())
    before = by_symbol("high", lambda x: x.rolling(20).max().shift(1))
    usual = by_symbol("volume", lambda x: x.rolling(20).mean())
    table["matched"] = (table["close"] > before) & (table["volume"] > usual)
    # Looked at by a study: the condition is known, which a false part decides alone.
    known = (before.notna() & usual.notna()) | (table["close"] <= before) | (table["volume"] <= usual)
    table["known"] = known
    table = table.merge(closes.rename(columns={"close": "own"}), on=["time", "symbol"], how="left")
    own = table.groupby("symbol")["own"]
    for horizon in HORIZONS:
        table[f"forward_{horizon}"] = own.shift(-horizon) / table["own"] - 1
    return table.sort_values(["time", "symbol"]).reset_index(drop=True)


def newey_west(excess, lags, number_of):
    """t of a mean whose observations overlap; `number_of` is each bar's place among all bars."""
    if len(excess) < 2:
        return None
    deviation = pd.Series(excess.to_numpy() - excess.mean(), index=[number_of[time] for time in excess.index])
    variance = (deviation**2).sum()
    for lag in range(1, lags):
        later = deviation.reindex(deviation.index + lag).to_numpy()
        variance += 2 * (1 - lag / lags) * np.nansum(deviation.to_numpy() * later)
    error = np.sqrt(max(variance, 0)) / len(deviation)
    return excess.mean() / error if error > 0 else None


def studied(table, group_of):
    """{(group, horizon): figures} of the bars of a span."""
    found, looked_at = {}, table[table["known"]]
    number_of = {time: at for at, time in enumerate(sorted(looked_at["time"].unique()))}
    parts = [(None, looked_at)] if group_of is None else looked_at.groupby(group_of[table["known"]])
    for group, part in parts:
        for horizon in HORIZONS:
            returns = part.dropna(subset=[f"forward_{horizon}"]).rename(columns={f"forward_{horizon}": "return"})
            matches = returns[returns["matched"]]
            every = returns.groupby("time")["return"].mean()
            excess = (matches.groupby("time")["return"].mean() - every).dropna()
            found[group, horizon] = {
                "matches": len(matches),
                "open": int((part["matched"] & part[f"forward_{horizon}"].isna()).sum()),
                "bars": len(excess),
                "hit_rate": (matches["return"] > 0).mean(),
                "mean": matches["return"].mean(),
                "median": matches["return"].median(),
                "universe": len(returns),
                "universe_mean": returns["return"].mean(),
                "universe_hit_rate": (returns["return"] > 0).mean(),
                "excess": excess.mean(),
                "t": newey_west(excess, horizon, number_of),
            }
    return found


def compare(run, check, folder, case):
    dataset, first, last, adjusted, label = case

    def exported(adjust):
        path = folder / f"{dataset}.{adjust}.csv"
        run("data", "export", dataset, "--output", str(path), "--adjust", adjust)
        return pd.read_csv(path).assign(time=lambda table: table["time"].str[:10])

    table = of_pandas(exported("none"), exported(adjusted)[["time", "symbol", "close"]])
    span = table[(table["time"] >= first) & (table["time"] <= last)]

    out = folder / "panel.csv"
    select = [word for name, text in FEATURES.items() for word in ("--select", f"{text} as {name}")]
    scan = ["--dataset", dataset, "--where", CONDITION]
    forward = ["--forward", ",".join(map(str, HORIZONS))]
    run("panel", *scan, *select, "--from", first, "--to", last, *forward, "--quiet", "--output", str(out))
    panel = pd.read_csv(out)
    keys = list(zip(panel["time"].str[:10], panel["symbol"]))
    if keys != list(zip(span["time"], span["symbol"])):
        check.wrong += 1
        print(f"{dataset}: rows of other bars")
        return
    for name in [*FEATURES, "matched", *(f"forward_{horizon}" for horizon in HORIZONS)]:
        truths = panel[name].map({True: 1.0, False: 0.0, "true": 1.0, "false": 0.0}) if name in ("up", "matched") else panel[name]
        check.same(f"{dataset} {name}", truths, span[name].astype(float))

    # Matches of the span; their returns reach beyond it.
    options = ["--from", first, "--as-of", last, "--horizons", ",".join(map(str, HORIZONS)), "--json"]
    labels = {}
    if label:
        for symbol in table["symbol"].unique():
            labels[symbol] = label_of(json.loads(run("data", "inspect", dataset, "--symbol", symbol, "--json")), label)
    for by in [None, label] if label else [None]:
        wanted = studied(span, None if by is None else span["symbol"].map(labels))
        found = json.loads(run("study", *scan, *options, *(["--by", by] if by else [])))
        got = {(of["group"], of["horizon"]): of for of in found}
        if set(got) != set(wanted):
            check.wrong += 1
            print(f"{dataset} by {by}: groups {sorted(map(str, got))}, expected {sorted(map(str, wanted))}")
            continue
        for key, figures in wanted.items():
            for name, want in figures.items():
                of = got[key][name]
                check.same(f"{dataset} {key} {name}", [np.nan if of is None else of], [np.nan if want is None else want])


def label_of(listed, label):
    """The label of the last row of a symbol's listing, wherever the JSON has it."""
    if isinstance(listed, dict):
        if listed.get("listing"):
            return listed["listing"][-1]["labels"].get(label)
        listed = list(listed.values())
    if isinstance(listed, list):
        return next(filter(None, (label_of(value, label) for value in listed)), None)
    return None


def main():
    # A rolling deviation of pandas is a running sum, which loses digits.
    check = Check(relative=1e-7, absolute=1e-9)
    with executable() as (run, folder):
        for case in CASES:
            compare(run, check, folder, case)
    print(f"{check.compared} values compared with pandas {pd.__version__}, {check.wrong} checks failed")
    raise SystemExit(check.wrong > 0 or check.compared < 100_000)


if __name__ == "__main__":
    main()
