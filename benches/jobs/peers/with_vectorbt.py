"""vectorbt over one table of closes: a column for each symbol, aligned at the symbols' last bars, since its windows count missing cells.
Its crossings follow a touch (equal averages) in another way; comparing allows for that."""

import numpy
import pandas
import pyarrow
import pyarrow.parquet
import vectorbt
from arrays import Market
from common import BELOW, FAST, RSI, SLOW, SWEEP_BARS, SWEEP_FAST, SWEEP_SLOW, WITHIN, main


def closes(market, symbols):
    """The table; missing cells come before the first bar of a shorter symbol."""
    lengths = (market.ends - market.starts)[symbols]
    table = numpy.full((lengths.max(), len(symbols)), numpy.nan)
    for column, symbol in enumerate(symbols):
        table[len(table) - lengths[column]:, column] = market.close[market.rows(symbol)]
    return pandas.DataFrame(table, columns=numpy.array(market.symbols)[symbols])


def every_bar(folder, answer):
    market = Market(folder, ["close"])
    symbols = numpy.arange(len(market.symbols))
    close = closes(market, symbols)
    crossed = vectorbt.MA.run(close, FAST).ma_crossed_above(vectorbt.MA.run(close, SLOW)).to_numpy()
    recent = crossed.copy()
    for back in range(1, WITHIN):
        recent[back:] |= crossed[:-back]
    with numpy.errstate(invalid="ignore"):
        table = recent & (vectorbt.talib("RSI").run(close, RSI).real.to_numpy() < BELOW)
    signals = numpy.concatenate([table[len(table) - (market.ends[i] - market.starts[i]):, i] for i in symbols])
    columns = {name: market.table.column(name) for name in ("symbol", "time", "close")}
    pyarrow.parquet.write_table(pyarrow.table({**columns, "signal": signals}), answer)


def sweep(folder, answer):
    market = Market(folder, ["close"])
    symbols = market.current()
    lengths = (market.ends - market.starts)[symbols]
    close = closes(market, symbols)
    pairs = [(fast, slow) for fast in SWEEP_FAST for slow in SWEEP_SLOW]
    fast = vectorbt.MA.run(close, [pair[0] for pair in pairs])
    slow = vectorbt.MA.run(close, [pair[1] for pair in pairs])
    counts = fast.ma_crossed_above(slow).to_numpy()[-SWEEP_BARS:].sum(axis=0).reshape(len(pairs), len(symbols))
    long = pandas.DataFrame({
        "symbol": numpy.tile(close.columns.to_numpy(), len(pairs)),
        "fast": numpy.repeat([pair[0] for pair in pairs], len(symbols)),
        "slow": numpy.repeat([pair[1] for pair in pairs], len(symbols)),
        "crossings": counts.ravel(),
    })
    long[numpy.tile(lengths, len(pairs)) >= long["slow"] + SWEEP_BARS].to_parquet(answer, index=False)


if __name__ == "__main__":
    main({"every_bar": every_bar, "sweep": sweep})
