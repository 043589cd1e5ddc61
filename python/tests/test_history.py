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
                      sweep_where=["fast < slow", "slow > 0"])  # fmt: skip
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


def test_features_are_the_tensors_of_the_command_line(cli, tmp_path):
    np = pytest.importorskip("numpy")
    folder = tmp_path / "tensors"
    cli("panel", "--dataset", "demo", "--where", "close > sma(20)", "--select", "rsi(14) as r", "--select", "close > open as up", "--from", "2024-11-01",
        "--forward", "1,5", "--split", "2024-11-20", "--embargo", "2", "--tensors", folder, "--window", "7")  # fmt: skip
    found = tw.features("demo", ["rsi(14) as r", "close > open as up"], where="close > sma(20)", start="2024-11-01", forward=[1, 5],
                        split="2024-11-20", embargo=2, window=7)  # fmt: skip
    for name, tensor in (("features", found.x), ("mask", found.mask), ("labels", found.y)):
        theirs, ours = np.load(folder / f"{name}.npy"), np.asarray(tensor)
        assert theirs.dtype == ours.dtype and theirs.shape == ours.shape == tuple(tensor.shape) and theirs.tobytes() == ours.tobytes(), name
    about = json.loads((folder / "tensors.json").read_text())
    assert (found.names, found.labels, len(found)) == (about["features"], about["labels"], about["samples"])
    index = (folder / "index.csv").read_text().splitlines()
    assert index[0].split(",") == found.index.columns and len(index) == len(found) + 1
    rows = [[str(time)[:10], *rest] for time, *rest in found.index.rows()]
    assert [line.split(",") for line in index[1:]] == rows


def test_tensors_are_handed_out_by_dlpack_without_a_copy():
    import gc

    np = pytest.importorskip("numpy")
    found = tw.features("us5", {"r": "rsi(14)"}, window=5, start="2013-02-01", forward=[1])
    taken = np.from_dlpack(found.x)
    place = found.x.__array_interface__["data"][0]
    assert taken.__array_interface__["data"][0] == place and taken.shape == (100, 5, 1) and taken.dtype == np.float32
    assert np.from_dlpack(found.mask).dtype == np.bool_ and np.from_dlpack(found.y).dtype == np.float64
    assert found.x.__dlpack_device__() == (1, 0)
    # Libraries that ask for it get a capsule of DLPack's first version, and NumPy an array that it may write.
    names = [repr(found.x.__dlpack__(max_version=version)).split('"')[1] for version in (None, (0, 8), (1, 0), (2, 1))]
    assert names == ["dltensor", "dltensor", "dltensor_versioned", "dltensor_versioned"]
    assert taken.flags.writeable == (np.lib.NumpyVersion(np.__version__) >= "2.1.0")
    other = np.from_dlpack(found.x, copy=True) if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else taken.copy()
    assert other.__array_interface__["data"][0] != place and (other == taken).all()
    # It lives as long as whoever took it.
    kept = taken.copy()
    unused = found.x.__dlpack__()
    del found, unused
    gc.collect()
    assert (taken == kept).all()
    empty = tw.features("us5", {"r": "rsi(14)"}, window=5, where="1 == 2", matches_only=True, start="2013-02-01")
    assert len(empty) == 0 and np.from_dlpack(empty.x).shape == (0, 5, 1)
    with pytest.raises(BufferError):
        kept_by = tw.features("us5", "close", window=1, start="2013-02-27").x
        kept_by.__dlpack__(dl_device=(2, 0))
    for named in ({"window": 0}, {"window": 10**6}, {"window": 2, "device": "tpu"}, {"window": 2.5}):
        with pytest.raises(tw.Mistake):
            tw.features("us5", "close", start="2013-02-01", **named)
