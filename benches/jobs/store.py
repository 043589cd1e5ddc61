"""Writes the bars that Trawl exported in another form.

    store.py parquet|arrow|duckdb EXPORT.parquet FILE
    store.py text EXPORT.parquet FOLDER ROWS

Parquet has polars' defaults; the Arrow file is one uncompressed batch with symbols as a dictionary, so that arrays can be mapped without a
copy; DuckDB's table is in the same order. Text files have ROWS rows.
"""

import gzip
import pathlib
import shutil
import sys

import polars as pl

# Of gzip's: the usual compromise of tools that write logs and exports.
GZIP_LEVEL = 6


def main():
    kind, source, target = sys.argv[1:4]
    if kind == "duckdb":
        import duckdb

        connection = duckdb.connect(target)
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE TABLE bars AS SELECT * FROM read_parquet('{source}')")
        connection.close()
        return
    bars = pl.read_parquet(source)
    if kind == "parquet":
        bars.write_parquet(target)
    elif kind == "arrow":
        bars = bars.with_columns(pl.col("symbol").cast(pl.Categorical)).rechunk()
        # Old string layouts are those that every reader knows.
        bars.write_ipc(target, compression="uncompressed", compat_level=pl.CompatLevel.oldest(), record_batch_size=len(bars))
    else:
        rows, folder = int(sys.argv[4]), pathlib.Path(target)
        if len(bars) < rows:
            sys.exit(f"store.py: the export has {len(bars)} rows, not {rows}")
        bars = bars.head(rows).with_columns(pl.col("time").dt.date())
        bars.write_parquet(folder / "rows.parquet")
        bars.write_csv(folder / "rows-by-symbol.csv")
        bars.sort("time", "symbol").write_csv(folder / "rows-by-date.csv")
        with open(folder / "rows-by-date.csv", "rb") as plain, gzip.open(folder / "rows-by-date.csv.gz", "wb", GZIP_LEVEL) as packed:
            shutil.copyfileobj(plain, packed, 1 << 20)


if __name__ == "__main__":
    main()
