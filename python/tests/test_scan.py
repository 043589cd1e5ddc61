"""Scans: the answer is the command line's, byte for byte."""

import json
import threading
import time

import pytest

import trawl as tw
from conftest import AS_OF, GOLDEN_CROSS

FORMATS = {"csv": "csv", "json": "json", "ndjson": "jsonl", "parquet": "parquet", "arrow": "arrow"}

SCANS = {
    "plain": ({"where": GOLDEN_CROSS}, ["--where", GOLDEN_CROSS]),
    "selected": (
        {"where": "true", "select": {"r": "rsi(14)", "up": "close > open"}, "rank": "rsi(14) asc", "limit": 3},
        ["--where", "true", "--select", "rsi(14) as r", "--select", "close > open as up", "--rank", "rsi(14) asc", "--limit", "3"],
    ),
    "lets": (
        {"where": "close > slow", "lets": {"slow": "sma(200)"}, "universe": "volume > 1000", "defs": {"f(n)": "roc(n)"},
         "select": ["f(5) as f"]},
        ["--where", "close > slow", "--let", "slow=sma(200)", "--universe", "volume > 1000", "--def", "f(n)=roc(n)",
         "--select", "f(5) as f"],
    ),
    "sweep": (
        {"where": "rsi(n) > 50", "sweep": {"n": range(5, 21, 5)}},
        ["--where", "rsi(n) > 50", "--sweep", "n=5:20:5"],
    ),
    "best": (
        {"where": "true", "sweep": {"n": [5, 10, 20]}, "best": "roc(close, n)", "keep": 2},
        ["--where", "true", "--sweep", "n=5,10,20", "--best", "roc(close, n)", "--keep", "2"],
    ),
    "history": ({"where": "rsi(14) > 50", "history": 100}, ["--where", "rsi(14) > 50", "--history", "100"]),
    "cross": (
        {"where": "xs_rank(roc(20)) <= 2", "select": ["xs_rank(roc(20)) as r"]},
        ["--where", "xs_rank(roc(20)) <= 2", "--select", "xs_rank(roc(20)) as r"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("scan", SCANS)
def test_the_answer_is_the_command_lines_in_every_format(cli, tmp_path, scan):
    clauses, flags = SCANS[scan]
    answer = tw.scan("us5", as_of=AS_OF, **clauses)
    for format, extension in FORMATS.items():
        theirs, ours = tmp_path / f"theirs.{extension}", tmp_path / f"ours.{extension}"
        cli("scan", "--dataset", "us5", "--as-of", AS_OF, "--quiet", *flags, "--output", theirs)
        answer.write(ours)
        assert ours.read_bytes() == theirs.read_bytes(), (scan, format)
        assert answer.to_bytes(format) == theirs.read_bytes(), (scan, format)
    beside = json.loads((tmp_path / "theirs.csv.identity.json").read_text())
    assert answer.identity == beside["identity"] and answer.digest == beside["answer_digest"]
    assert answer.counts == beside["counts"]


def test_frames_have_the_values_of_the_csv(cli):
    answer = tw.scan("us5", where=GOLDEN_CROSS, select=["close", "rsi(14) as r"], as_of=AS_OF)
    lines = answer.to_bytes("csv").decode().splitlines()
    names = lines[0].split(",")
    for frame in (answer.df, answer.to_polars(), answer.to_pandas(), answer.to_arrow()):
        columns = list(getattr(frame, "column_names", frame.columns))
        assert columns == names
        symbols = frame["symbol"].to_list() if hasattr(frame["symbol"], "to_list") else frame["symbol"].to_pylist()
        assert symbols == [line.split(",")[2] for line in lines[1:]]
        values = frame["r"].to_list() if hasattr(frame["r"], "to_list") else frame["r"].to_pylist()
        texts = [line.split(",")[names.index("r")] for line in lines[1:]]
        read = [float(text) if text else None for text in texts]
        assert [None if value is None or value != value else value for value in values] == read


def test_the_answer_of_a_market_does_not_depend_on_threads(market):
    one, two = (tw.scan(market, where="xs_pct(roc(20)) > 0.9", as_of=None, threads=n) for n in (1, 2))
    assert one == two and one.to_bytes("csv") == two.to_bytes("csv") and one.counts["matched"] > 0


def test_an_answer_is_shown():
    answer = tw.scan("us5", where="close > sma(200)", select={"rsi": "rsi(14)"}, as_of=AS_OF)
    assert "us5@" in repr(answer) and "2 matched" in repr(answer) and "GOOG" in repr(answer)
    page = answer._repr_html_()
    assert page.count("<tr>") == 3 and "rsi" in page
    evil = tw.scan("us5", where="true", select={"x": "close"}, as_of=AS_OF)
    evil._about["identity"]["dataset"] = "<script>"
    assert "<script>" not in evil._repr_html_()


def test_why_a_symbol_is_in_the_answer_or_not(cli):
    answer = tw.scan("us5", where=GOLDEN_CROSS, as_of=AS_OF)
    theirs = json.loads(cli("scan", "--dataset", "us5", "--as-of", AS_OF, "--where", GOLDEN_CROSS, "--why", "IBM,AAPL", "--json"))
    assert [answer.why("IBM"), answer.why("AAPL")] == theirs
    assert "<-" in repr(answer.why("AAPL"))
    near = json.loads(cli("scan", "--dataset", "us5", "--as-of", AS_OF, "--where", GOLDEN_CROSS, "--near", "1", "--json"))
    assert tw.near("us5", where=GOLDEN_CROSS, as_of=AS_OF) == near


def test_every_value(cli, tmp_path):
    answer = tw.scan("us5", where=GOLDEN_CROSS, select=["rsi(14) as r"], as_of=AS_OF, values="all")
    file = tmp_path / "all.csv"
    cli("scan", "--dataset", "us5", "--as-of", AS_OF, "--where", GOLDEN_CROSS, "--select", "rsi(14) as r", "--values", "all",
        "--quiet", "--output", file)  # fmt: skip
    assert answer.to_bytes("csv") == file.read_bytes()


def test_a_document_of_a_file_and_arguments_that_replace_its_clauses(cli, tmp_path):
    (tmp_path / "lib.toml").write_text("[let]\nslow = 'sma(200)'\n")
    document = tmp_path / "scan.toml"
    document.write_text("dataset = 'us5'\ninclude = 'lib.toml'\nwhere = 'close > slow'\nselect = ['slow']\n")
    answer = tw.scan(file=document, as_of=AS_OF, limit=2)
    out = tmp_path / "out.csv"
    cli("scan", "--file", document, "--as-of", AS_OF, "--limit", "2", "--quiet", "--output", out)
    assert answer.to_bytes("csv") == out.read_bytes()
    document.write_text("dataset = 'us5'\n\nwhere = 'close > smaa(5)'\n")
    with pytest.raises(tw.Mistake) as caught:
        tw.scan(file=document, as_of=AS_OF)
    place = caught.value.mistakes[0]
    assert place.source.endswith("scan.toml") and place.excerpt == "smaa" and ":3:" in str(caught.value)


def test_explaining_runs_nothing():
    explained = tw.explain("us5", where="close > sma(200)", as_of=AS_OF)
    assert explained["bars_needed"] == [200, 200] and explained["too_short"] == [{"bars": 196, "symbol": "FB"}] and "199" in repr(explained)
    swept = tw.explain("us5", where="close > sma(n)", sweep={"n": [50, 250]}, as_of=AS_OF)
    assert swept["too_short"] == [] and swept["too_short_for_some"] == [{"bars": 196, "symbol": "FB", "combinations": 1}]
    assert "1 more for some of the 2 combinations: FB (196)" in repr(swept)


def test_a_deadline_ends_a_scan():
    with pytest.raises(tw.DeadlineExceeded):
        tw.scan("demo", where="rsi(n) > percentile(m)", sweep={"n": range(2, 60), "m": range(50, 150)}, deadline_s=0.1)


def test_ctrl_c_cancels_a_scan():
    """In a process of its own: a signal comes while the engine computes, and ends the scan within a second."""
    import os
    import signal
    import subprocess
    import sys

    program = (
        "import trawl as tw, sys, time\n"
        "print('ready', flush=True)\n"
        "begun = time.monotonic()\n"
        "try:\n"
        "    while True:\n"
        "        tw.scan('demo', where='rsi(n) > percentile(m)', sweep={'n': range(2, 60), 'm': range(50, 100)}, progress=False)\n"
        "except KeyboardInterrupt:\n"
        "    print('stopped', flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=os.environ.copy())
    assert child.stdout.readline() == b"ready\n"
    time.sleep(2)
    child.send_signal(signal.SIGINT)
    begun = time.monotonic()
    out, _ = child.communicate(timeout=30)
    assert out == b"stopped\n" and child.returncode == 0
    assert time.monotonic() - begun < 5


def test_other_threads_of_python_run_meanwhile():
    counted = [0]
    stop = threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    tw.scan("demo", where="rsi(n) > percentile(m)", sweep={"n": range(2, 60), "m": range(50, 150)})
    stop.set()
    thread.join()
    assert counted[0] > 10


def test_progress_is_shown_and_cleared(capsys):
    from trawl._progress import Bar

    with Bar(True) as bar:
        bar._begun -= 10
        bar.tick(3, 10)
    shown = capsys.readouterr().err
    assert "3 of 10" in shown and shown.endswith("\r")
    with Bar(False) as bar:
        assert bar.tick is None


def test_a_midnight_is_its_date_in_bars_of_days_and_an_instant_in_bars_of_minutes():
    import datetime as dt

    expected = tw.scan("us5", where="true", as_of="2013-02-22")
    whens = [dt.date(2013, 2, 22), dt.datetime(2013, 2, 22), dt.datetime(2013, 2, 22, tzinfo=dt.timezone.utc)]
    np, pandas = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    whens += [np.datetime64("2013-02-22"), np.datetime64("2013-02-22T00:00:00"), np.datetime64("2013-02-22", "ns")]
    whens += [pandas.Timestamp("2013-02-22"), pandas.Timestamp("2013-02-22", tz="America/New_York"), expected.df["time"][0]]
    for when in whens:
        assert tw.scan("us5", where="true", as_of=when) == expected, repr(when)
    assert tw.scan("us5", where="true", as_of="2013-02-22 00:00:00").as_of == "2013-02-21", "a text is what it says"
    frame = tw.panel("us5", "close", start=pandas.Timestamp("2013-02-19"), end=pandas.Timestamp("2013-02-22"))
    assert frame.equals(tw.panel("us5", "close", start="2013-02-19", end="2013-02-22"))
    assert tw.chart("us5", "IBM", as_of=whens[1]).svg == tw.chart("us5", "IBM", as_of="2013-02-22").svg
    midnight = dt.datetime(2024, 12, 5, tzinfo=dt.timezone.utc)
    minutes = tw.scan("demo-1m", where="true", as_of=midnight)
    assert minutes == tw.scan("demo-1m", where="true", as_of="2024-12-05T00:00:00Z")
    assert minutes.as_of < "2024-12-05"


def test_numbers_of_numpy_and_lists_as_text():
    np = pytest.importorskip("numpy")
    assert tw.scan("us5", where="true", rank="close", limit=np.int64(2)).symbols == tw.scan("us5", where="true", rank="close", limit=2).symbols
    assert tw.scan("us5", where="true", history=np.int32(300)) == tw.scan("us5", where="true", history=300)
    text = tw.sweep("us5", where="close > sma(close, n)", over={"n": "5,10"})
    assert text == tw.sweep("us5", where="close > sma(close, n)", over={"n": np.array([5, 10])})
    assert tw.scan("us5", where="close > 1 and up", lets={"up": True}).counts["matched"] == 5
    for named in ({"origin": True}, {"limit": -1}, {"limit": 2.5}, {"watchlist": "IBM"}, {"watchlist": []}, {"watchlist": ["O'X"]}, {"sweep": {"n": [float("nan")]}}):
        with pytest.raises(tw.Mistake):
            tw.scan("us5", where="true", **named)
    with pytest.raises(tw.Mistake, match="horizons"):
        tw.study("us5", where="true", horizons=[-1])


def test_a_fault_of_the_engine_is_an_error_of_this_package():
    from trawl.errors import call

    class PanicException(BaseException):
        pass

    def panics():
        raise PanicException("index out of bounds")

    with pytest.raises(tw.TrawlError, match="please report it"):
        call(panics)
    with pytest.raises(KeyboardInterrupt):
        call(lambda: (_ for _ in ()).throw(KeyboardInterrupt()))
