"""pandas from Parquet, grouped by symbol."""

import pandas
from common import SHARE, WEIGHTS, main


def rank(folder, answer):
    frame = pandas.read_parquet(f"{folder}/bars.parquet", columns=["symbol", "time", "close"])
    close = frame.groupby("symbol", sort=False)["close"]
    frame["score"] = sum(weight * 100 * (frame["close"] / close.shift(n) - 1) for n, weight in WEIGHTS.items())
    last = frame.groupby("symbol", sort=False).tail(1)
    last = last[last["time"] == last["time"].max()].dropna(subset="score")
    value = (last["score"].rank(method="average") - 0.5) / len(last)
    last.assign(value=value)[value >= SHARE][["symbol", "value"]].to_csv(answer, index=False)


if __name__ == "__main__":
    main({"rank": rank})
