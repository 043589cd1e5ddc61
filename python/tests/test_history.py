"""Panels, signals, sweeps, studies and charts: as the command line writes them."""

import json

import pytest

import trawl as tw
from conftest import AS_OF, GOLDEN_CROSS

pl = pytest.importorskip("polars")


def test_a_panel_is_the_command_lines(cli, tmp_path):
    out = tmp_path / "panel.parquet"
    cli("panel", "--dataset", "us5", "--where", GOLDEN_CROSS, "--select", "rsi(14) as rsi", "--select", "close > open as up",
        "--from", "2012-06-01", "--to", AS_OF, "--forward", "1,5", "--split", "2013-01-02", "--embargo", "2", "--output", out)  # fmt: skip
    ours = tw.panel("us5", {"rsi": "rsi(14)", "up": "close > open"}, where=GOLDEN_CROSS, start="2012-06-01", end=AS_OF,
                    forward=[1, 5], split="2013-01-02", embargo=2)  # fmt: skip
    assert ours.equals(pl.read_parquet(out)) and ours.height > 800
    matches = tw.panel("us5", {"rsi": "rsi(14)"}, where=GOLDEN_CROSS, start="2012-06-01", end=AS_OF, matches_only=True)
    assert matches.equals(ours.filter(pl.col("matched")).select("time", "symbol", "rsi"))


def test_signals_are_the_matches_of_every_bar(cli, tmp_path):
    out = tmp_path / "all.parquet"
    cli("scan", "--dataset", "us5", "--where", GOLDEN_CROSS, "--as-of", AS_OF, "--from", "2013-01-02", "--all-bars", out)
    theirs = pl.read_parquet(out).filter(pl.col("status") == "matched").select("time", "symbol").sort("time", "symbol")
    rows = tw.signals("us5", where=GOLDEN_CROSS, start="2013-01-02", end=AS_OF, wide=False)
    assert rows.sort("time", "symbol").equals(theirs) and rows.height > 10
    wide = tw.signals("us5", where=GOLDEN_CROSS, start="2013-01-02", end=AS_OF)
    assert wide.columns == ["time", "AAPL", "FB", "GOOG", "IBM", "MSFT"]
    long = wide.unpivot(index="time", variable_name="symbol", value_name="m").filter("m").select("time", "symbol")
    assert long.sort("time", "symbol").equals(theirs)


def test_a_study_is_the_command_lines(cli):
    theirs = json.loads(cli("study", "--dataset", "us5", "--where", "rsi(14) < 30", "--horizons", "1,5", "--as-of", AS_OF, "--json"))
    ours = tw.study("us5", where="rsi(14) < 30", horizons=[5, 1], end=AS_OF)
    assert list(ours) == theirs and ours.df.height == 2 and "horizon" in repr(ours)


def test_a_sweep_has_a_row_for_each_combination():
    answer = tw.sweep("us5", where="sma(fast) > sma(slow)", over={"fast": "5:15:5", "slow": [20, 50]}, as_of=AS_OF,
                      sweep_where="fast < slow")  # fmt: skip
    assert len(answer) == 30 and answer.df.columns[1:3] == ["fast", "slow"]


def test_a_chart_is_the_command_lines(cli, tmp_path):
    out = tmp_path / "ibm.svg"
    cli("chart", "IBM", "--dataset", "us5", "--expr", "sma(50)", "--panel", "rsi(14)", "--as-of", AS_OF, "--output", out)
    ours = tw.chart("us5", "IBM", "sma(50)", panel="rsi(14)", as_of=AS_OF)
    assert ours.svg.encode() == out.read_bytes() and ours._repr_svg_() == ours.svg
    assert ours.png().startswith(b"\x89PNG")
    answer = tw.scan("us5", where="rsi(14) < 35", as_of=AS_OF)
    marked = tw.chart("us5", "IBM", marks=answer, as_of=AS_OF)
    assert marked.svg != tw.chart("us5", "IBM", as_of=AS_OF).svg


def test_the_functions_are_the_command_lines(cli):
    theirs = {entry["name"]: entry for entry in json.loads(cli("indicators", "--json"))}
    assert {name: dict(entry) for name, entry in tw.indicators().items()} == theirs
    assert "band" in repr(tw.indicators("bollinger")) and "default" in repr(tw.indicator("rsi"))
