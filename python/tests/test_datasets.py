"""Datasets from frames: the same checks as an import of a file, the same snapshot."""

import os

import pytest

import trawl as tw
from test_compute import bars

pl = pytest.importorskip("polars")


def test_a_frame_is_the_dataset_of_its_file(tmp_path):
    frame = bars()
    file = tmp_path / "bars.csv"
    frame.write_csv(file)
    of_file = tw.Dataset.import_(file, name="bars", root=tmp_path / "a", calendar="24/7")
    of_frame = tw.Dataset.from_polars(frame, name="bars", root=tmp_path / "b", calendar="24/7")
    scans = [tw.scan(d, where="rsi(14) > 50", select=["close", "sma(20) as m"]) for d in (of_file, of_frame)]
    assert scans[0].to_bytes("csv") == scans[1].to_bytes("csv")
    assert of_file.snapshot == of_frame.snapshot
    assert of_frame.symbols == ["S0", "S1", "S2", "S3"] and of_frame.identity == f"bars@{of_frame.snapshot}"
    assert "4 symbols" in repr(of_frame)


def test_every_library_gives_the_same_snapshot(tmp_path):
    frame = bars()
    snapshots = {tw.Dataset.from_polars(frame, calendar="24/7").snapshot, tw.Dataset.from_polars(frame.lazy(), calendar="24/7").snapshot}
    pandas = pytest.importorskip("pandas")
    given = pandas.DataFrame({name: frame[name].to_list() for name in frame.columns})
    snapshots.add(tw.Dataset.from_pandas(given, calendar="24/7").snapshot)
    given["date"] = pandas.to_datetime(given["date"])
    snapshots.add(tw.Dataset.from_pandas(given.set_index(["symbol", "date"]), calendar="24/7").snapshot)
    pyarrow = pytest.importorskip("pyarrow")
    snapshots.add(tw.Dataset.from_arrow(pyarrow.table(frame.to_dict(as_series=False)), calendar="24/7").snapshot)
    assert len(snapshots) == 1


def test_columns_are_mapped(tmp_path):
    frame = bars()
    other = frame.rename({"symbol": "name", "date": "day", "close": "last"})
    made = tw.Dataset.from_polars(other, symbol="name", time="day", close="last", calendar="24/7")
    assert made.snapshot == tw.Dataset.from_polars(frame, calendar="24/7").snapshot
    with pytest.raises(tw.Mistake, match="lst"):
        tw.Dataset.from_polars(other, symbol="name", time="day", close="lst", calendar="24/7")


def test_rows_that_cannot_be_bars_are_quarantined_and_counted():
    frame = bars(1, 30)
    high = pl.when(pl.int_range(30) == 3).then(pl.col("low") - 1).otherwise(pl.col("high"))
    made = tw.Dataset.from_polars(frame.with_columns(high.alias("high")), calendar="24/7")
    assert (made.report.rows_read, made.report.rows_kept, made.report.rows_quarantined) == (30, 29, 1)
    assert sum(made.report.quarantined.values()) == 1


def test_appended_bars_make_a_new_snapshot_and_the_old_one_stays():
    frame = bars(2, 40)
    days = sorted(set(frame["date"].to_list()))
    before = tw.Dataset.from_polars(frame.filter(pl.col("date") < days[30]), calendar="24/7")
    after = before.append(frame.filter(pl.col("date") >= days[30]))
    assert before.snapshot != after.snapshot and after.report.rows_kept == frame.height - 60
    one, two = tw.scan(before, where="true"), tw.scan(after, where="true")
    assert one.as_of < two.as_of
    assert tw.scan(after, where="true", as_of=one.as_of, select=["sma(20)"]).matches == tw.scan(
        before, where="true", select=["sma(20)"]
    ).matches


def test_a_temporary_dataset_vanishes_with_its_last_object():
    made = tw.Dataset.from_polars(bars(1, 30), calendar="24/7")
    folder = made._folder.name
    more = made.append(bars(1, 31).tail(1))
    del made
    assert os.path.isdir(folder) and tw.scan(more, where="true").counts["matched"] == 1
    del more
    assert not os.path.exists(folder)


def test_a_frame_of_no_bars_is_refused():
    with pytest.raises(tw.Mistake):
        tw.Dataset.from_polars(pl.DataFrame({"a": [1.0]}), calendar="24/7")
    with pytest.raises(tw.Mistake):
        tw.Dataset.from_polars(bars().head(0), calendar="24/7")


def test_the_datasets_of_a_root(cli):
    import json

    assert tw.datasets() == json.loads(cli("data", "list", "--json"))
    assert tw.Dataset.open("us5").inspect("IBM") == json.loads(cli("data", "inspect", "us5", "--symbol", "IBM", "--json"))


def test_midnights_of_any_zone_are_the_same_days_in_every_library():
    pandas, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    days = pandas.DatetimeIndex(["2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05"])
    made = set()
    for zone in (None, "UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo"):
        given = pandas.DataFrame({"symbol": "A", "time": days.tz_localize(zone), "close": [1.0, 2.0, 3.0, 4.0]})
        made.add(tw.Dataset.from_pandas(given).snapshot)
        made.add(tw.Dataset.from_pandas(given.set_index("time")).snapshot)
        made.add(tw.Dataset.from_arrow(pa.Table.from_pandas(given)).snapshot)
        made.add(tw.Dataset.from_polars(pl.from_pandas(given)).snapshot)
    assert len(made) == 1
    ours = tw.scan(tw.Dataset.from_pandas(given), where="true")
    assert ours.as_of == "2024-01-05"


def test_objects_of_times_and_an_index_without_a_name_are_read():
    pandas = pytest.importorskip("pandas")
    import datetime as dt

    days = [dt.date(2024, 1, day) for day in (2, 3, 4, 5)]
    expected = tw.Dataset.from_polars(pl.DataFrame({"symbol": ["A"] * 4, "date": days, "close": [1.0, 2.0, 3.0, 4.0]}))
    unnamed = pandas.DataFrame({"symbol": "A", "close": [1.0, 2.0, 3.0, 4.0]}, index=pandas.to_datetime(days))
    assert tw.Dataset.from_pandas(unnamed).snapshot == expected.snapshot
    berlin = dt.timezone(dt.timedelta(hours=1))
    aware = [dt.datetime(day.year, day.month, day.day, tzinfo=berlin) for day in days]
    given = pandas.DataFrame({"symbol": "A", "date": pandas.Series(aware, dtype=object), "close": [1.0, 2.0, 3.0, 4.0]})
    assert tw.Dataset.from_pandas(given).snapshot == expected.snapshot
    # A bar without its time is quarantined, whatever library has it.
    holes = [None, *days[1:]]
    for frame in (pandas.DataFrame({"symbol": "A", "date": holes, "close": [1.0, 2.0, 3.0, 4.0]}), pandas.DataFrame({"symbol": "A", "date": pandas.to_datetime(holes), "close": [1.0, 2.0, 3.0, 4.0]})):  # fmt: skip
        report = tw.Dataset.from_pandas(frame).report
        assert (report.rows_kept, report.quarantined) == (3, {"unreadable time": 1})
    with pytest.raises(tw.Mistake, match="has no name"):
        index = pandas.MultiIndex.from_arrays([["A"] * 4, pandas.to_datetime(days)], names=[None, "date"])
        tw.Dataset.from_pandas(pandas.DataFrame({"close": [1.0, 2.0, 3.0, 4.0]}, index=index))


def test_categories_of_numbers_and_large_whole_numbers_are_symbols():
    pandas = pytest.importorskip("pandas")
    days = pandas.to_datetime(["2024-01-02", "2024-01-03"] * 2)
    for symbols, names in (
        (pandas.Categorical([1, 1, 22, 22]), ["1", "22"]),
        ([2**53, 2**53, 2**53 + 1, 2**53 + 1], [str(2**53), str(2**53 + 1)]),
    ):
        given = pandas.DataFrame({"symbol": symbols, "date": days, "close": [1.0, 2.0, 3.0, 4.0]})
        assert tw.Dataset.from_pandas(given).symbols == names
        pyarrow = pytest.importorskip("pyarrow")
        assert tw.Dataset.from_arrow(pyarrow.Table.from_pandas(given)).symbols == names
