"""What is asked about an answer is about the bars that it was computed from, also when the dataset has newer ones: here, over HTTP, by
asyncio, and in another process."""

import asyncio
import concurrent.futures
import contextlib
import datetime as dt
import multiprocessing
import pickle

import pytest

import trawl as tw
from conftest import AS_OF, GOLDEN_CROSS
from test_remote import cluster, served

pl = pytest.importorskip("polars")

#: A rises, B falls; B fails on one term alone.
RISING = {"where": "close > 0 and close > sma(3)", "select": {"average": "sma(3)"}}


def bars(days, close):
    times = [dt.date(2024, 1, 2) + dt.timedelta(days=day) for day in days]
    values = [close(day) for day in days] + [100.0 - close(day) for day in days]
    return pl.DataFrame({"symbol": ["A"] * len(times) + ["B"] * len(times), "date": times * 2, "close": values})


def asked(answer):
    return answer.why("A"), answer.why(["A", "B"]), answer.near(), answer.near(2)


def of_first(answer):
    assert answer.symbols == ["A"] and answer.why("A")["status"] == "matched" and answer.why("B")["status"] == "not_matched"
    assert [miss["symbol"] for miss in answer.near()] == ["B"]
    assert {why["as_of"] for why in answer.why(["A", "B"])} == {answer.as_of}
    return asked(answer)


def check_follow_ups(place, data_root, name):
    """Of a server or of this package: each way to an answer."""
    market = tw.Dataset.from_polars(bars(range(10), lambda day: 10.0 + day), name=name, root=data_root, calendar="24/7")
    answers = [place.scan(name, **RISING, as_of=when) for when in (None, "now", "2024-01-08")]
    answers.append(place.scan(f"{name}@{market.snapshot}", **RISING))
    if place is not tw:
        scan = place.submit(name, **RISING)
        # By its id alone, as a program has it that did not submit it.
        answers += [place.answer(scan), place.scan(market, **RISING)]
        there = tw.AsyncRemote(place)

        async def by_asyncio():
            return [await there.scan(name, **RISING), await there.answer(scan)]

        answers += asyncio.run(by_asyncio())
    answers.append(pickle.loads(pickle.dumps(answers[0])))
    first = [of_first(answer) for answer in answers]
    chart = place.chart(name, "A", "sma(3)", marks=answers[0]).svg
    market.append(bars(range(10, 11), lambda day: 1.0))
    newest = place.scan(name, **RISING)
    assert newest.symbols == ["B"] and newest.why("A")["status"] == "not_matched"
    for answer, said in zip(answers, first):
        assert asked(answer) == said
        assert answer.dataset == market.identity and answer.symbols == ["A"]
        # A question of one's own about the same bars.
        assert place.near(answer.dataset, RISING["where"], as_of=answer.as_of) == said[2]
    # The marks of an answer are over its bars; the name alone means the newest.
    assert place.chart(name, "A", "sma(3)", marks=answers[0]).svg == chart != place.chart(name, "A", "sma(3)", marks=RISING["where"]).svg


def test_here(data_root):
    check_follow_ups(tw, data_root, "follow-here")


def test_of_trawl_serve(data_root):
    with served() as there:
        check_follow_ups(there, data_root, "follow-serve")


def test_of_a_coordinator(data_root, tmp_path):
    with cluster(tmp_path) as there:
        check_follow_ups(there, data_root, "follow-cluster")


def test_longer_bars_and_sweeps(data_root):
    """Timeframes are built from the same snapshot, and a sweep is refused with what to do."""
    with served() as there:
        for place in (tw, there):
            weekly = place.scan("us5", where="close > sma(5)", timeframe="1w", as_of=AS_OF)
            again = pickle.loads(pickle.dumps(weekly))
            assert weekly.why("IBM") == again.why("IBM") and weekly.why("IBM")["dataset"] == "us5"
            swept = place.sweep("us5", "close > sma(n)", over={"n": [5, 10]}, as_of=AS_OF)
            with pytest.raises(tw.Mistake, match="one value"):
                swept.why("IBM")


def test_symbols_are_names(remote_or_here):
    answer = remote_or_here.scan("us5", where=GOLDEN_CROSS, as_of=AS_OF)
    for wrong in (3, None, [3], ["IBM", None]):
        with pytest.raises(tw.Mistake, match="a symbol is expected") as caught:
            answer.why(wrong)
        assert "answer.why('IBM')" in caught.value.help
    with pytest.raises(tw.Mistake, match="IBMM") as caught:
        answer.why(["IBM", "IBMM"])
    assert "IBM" in caught.value.help
    assert answer.why([]) == [] and [why["symbol"] for why in answer.why(("IBM", "FB"))] == ["IBM", "FB"]


@pytest.fixture(params=["here", "serve"])
def remote_or_here(request):
    with contextlib.ExitStack() as stack:
        yield tw if request.param == "here" else stack.enter_context(served())


def test_more_symbols_than_one_request_takes(data_root):
    names = [f"S{at:03}" for at in range(150)]
    day = [dt.date(2024, 1, 2)] * len(names)
    frame = pl.DataFrame({"symbol": names, "date": day, "close": [float(at) for at in range(1, 151)]})
    tw.Dataset.from_polars(frame, name="many", root=data_root, calendar="24/7")
    with served() as there:
        found = there.scan("many", where="close > 75").why(names)
        assert [why["symbol"] for why in found] == names
        assert found == tw.scan("many", where="close > 75").why(names)


# Other processes ------------------------------------------------------------------------------------------------------------


def counted(dataset, where):
    """What a worker process does."""
    answer = tw.scan(dataset, where=where, select="close")
    return answer, dataset.identity, answer.symbols


def test_datasets_and_answers_go_to_spawned_processes_and_back(data_root, tmp_path):
    kept = tw.Dataset.from_polars(bars(range(10), lambda day: 10.0 + day), name="sent", root=data_root, calendar="24/7")
    passing = tw.Dataset.from_polars(bars(range(10), lambda day: 50.0 - day), calendar="24/7")
    assert pickle.loads(pickle.dumps(kept)).report == kept.report
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        for dataset in (kept, passing, tw.Dataset.open("us5")):
            theirs, identity, symbols = pool.submit(counted, dataset, "close > sma(3)").result()
            ours = tw.scan(dataset, where="close > sma(3)", select="close")
            assert theirs == ours and identity == dataset.identity and symbols == ours.symbols
            assert theirs.df.equals(ours.df) and theirs.rows == ours.rows and theirs.counts == ours.counts
            assert repr(theirs) == repr(ours) and theirs._repr_html_() == ours._repr_html_() and theirs.document == ours.document
            name = ours.rows[0]["symbol"]
            assert theirs.why(name) == ours.why(name) and theirs.near() == ours.near()
            for format in ("csv", "json", "ndjson", "parquet", "arrow"):
                assert theirs.to_bytes(format) == ours.to_bytes(format), format
            theirs.write(tmp_path / "theirs.csv")
            ours.write(tmp_path / "ours.csv")
            for end in (".csv", ".csv.identity.json"):
                assert (tmp_path / f"theirs{end}").read_bytes() == (tmp_path / f"ours{end}").read_bytes()


def test_columns_of_all_symbols_and_what_is_gone(data_root):
    answer = tw.scan("us5", where=GOLDEN_CROSS, select="rsi(14)", as_of=AS_OF, values="all")
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(answer))))
    # The document names the dataset alone, as it was scanned.
    for format in ("csv", "json", "ndjson", "parquet", "arrow"):
        assert again.to_bytes(format) == answer.to_bytes(format), format
    assert again.rows == answer.rows and again.document["dataset"] == "us5"
    temporary = tw.Dataset.from_polars(bars(range(10), lambda day: 10.0 + day), calendar="24/7")
    sent = pickle.dumps(tw.scan(temporary, where="close > sma(3)"))
    del temporary
    kept = pickle.loads(sent)
    # Its rows came along; its bars are gone, as that of every temporary dataset.
    assert kept.symbols == ["A"]
    with pytest.raises(tw.TrawlError):
        kept.why("A")


def test_answers_of_a_server_are_pickled_without_tokens(tmp_path):
    with served() as there:
        answer = there.scan("us5", where=GOLDEN_CROSS, as_of=AS_OF, select={"rsi": "rsi(14)"})
        again = pickle.loads(pickle.dumps(answer))
        assert again == answer and again.df.equals(answer.df) and again.why("IBM") == answer.why("IBM")
        assert again.to_bytes("csv") == answer.to_bytes("csv") and again.to_bytes("arrow") == answer.to_bytes("arrow")
        assert pickle.loads(pickle.dumps(there)).version() == there.version()
        secret = "a-token-as-text"
        with_text = tw.connect(f"http://127.0.0.1:{there._parts.port}", token=secret)
        with pytest.raises(tw.Mistake, match="not pickled"):
            pickle.dumps(with_text)
        sent = pickle.dumps(with_text.scan("us5", where=GOLDEN_CROSS, as_of=AS_OF))
        assert secret.encode() not in sent
        alone = pickle.loads(sent)
        assert alone.symbols == answer.symbols and alone.to_bytes("json") == answer.to_bytes("json") or len(alone) == 5
        with pytest.raises(tw.Mistake, match="token_file"):
            alone.why("IBM")
        file = tmp_path / "token"
        file.write_text(f"{secret}\n")
        of_file = tw.connect(f"http://127.0.0.1:{there._parts.port}", token_file=file)
        sent = pickle.dumps(of_file)
        assert secret.encode() not in sent and pickle.loads(sent)._token == secret


# Datasets of servers --------------------------------------------------------------------------------------------------------


def test_a_server_takes_datasets_of_its_data_root_and_refuses_others_with_what_to_do(data_root):
    kept = tw.Dataset.from_polars(bars(range(10), lambda day: 10.0 + day), name="shared", root=data_root, calendar="24/7")
    passing = tw.Dataset.from_polars(bars(range(10), lambda day: 10.0 + day), calendar="24/7")
    calls = {
        "scan": lambda place, of: place.scan(of, **RISING),
        "sweep": lambda place, of: place.sweep(of, "close > sma(n)", over={"n": [2, 3]}),
        "near": lambda place, of: place.near(of, RISING["where"]),
        "explain": lambda place, of: place.explain(of, RISING["where"]),
        "panel": lambda place, of: place.panel(of, "close").rows(),
        "signals": lambda place, of: place.signals(of, "close > sma(3)").rows(),
        "features": lambda place, of: repr(place.features(of, "close", window=2)),
        "study": lambda place, of: place.study(of, "close > sma(3)", horizons=[1]),
        "chart": lambda place, of: place.chart(of, "A").svg,
    }
    of_server = {
        "inspect": lambda place, of: place.inspect(of)["snapshot"],
        "coverage": lambda place, of: place.coverage(of),
        "series": lambda place, of: place.series(of, "A", "sma(3)").rows(),
        "submit": lambda place, of: place.submit(of, **RISING) and None,
    }
    with served() as there:
        for name, do in {**calls, **of_server}.items():
            theirs = do(there, kept)
            assert theirs == (do(tw, kept) if name in calls else do(there, kept.identity)), name
            for dataset, said, help in [
                (passing, "temporary folder", "trawl.scan"),
                (pickle.loads(pickle.dumps(passing)), "temporary folder", "trawl.scan"),
                (bars(range(3), float), "DataFrame", "trawl.Dataset.from_polars"),
                (3, "int", "trawl.datasets()"),
            ]:
                with pytest.raises(tw.Mistake, match=said) as caught:
                    do(there, dataset)
                assert help in caught.value.help, name


@pytest.mark.parametrize("function", [tw.scan, tw.near, tw.explain, tw.panel, tw.signals, tw.study])
def test_a_frame_is_no_dataset(function):
    pandas = pytest.importorskip("pandas")
    for frame, maker in [(bars(range(3), float), "from_polars"), (pandas.DataFrame({"close": [1.0]}), "from_pandas"), (bars(range(3), float).to_arrow(), "from_arrow")]:
        with pytest.raises(tw.Mistake) as caught:
            function(frame, where="close > 1")
        assert f"trawl.Dataset.{maker}(frame)" in caught.value.help
