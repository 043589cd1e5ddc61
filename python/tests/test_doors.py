"""Each method of a server gives what the engine here gives: of ``trawl serve``, of a coordinator with three workers, and as a coroutine."""

import asyncio
import inspect

import pytest

import trawl as tw
from conftest import AS_OF, GOLDEN_CROSS
from test_remote import cluster, served

np = pytest.importorskip("numpy")
pl = pytest.importorskip("polars")

SELECT = {"rsi": "rsi(14)", "up": "close > open", "spread": "high - low"}
LABELLED = {"forward": [5, 1], "split": "2013-01-02", "embargo": 2}
SPAN = {"start": "2012-11-01", "end": AS_OF}

#: Name, positional arguments, keyword arguments.
OPERATIONS = [
    ("scan", ("us5",), {"where": GOLDEN_CROSS, "select": SELECT, "as_of": AS_OF}),
    ("sweep", ("us5", "sma(fast) > sma(slow)"), {"over": {"fast": [5, 10], "slow": [20, 50]}, "as_of": AS_OF}),
    ("near", ("us5",), {"where": "close > sma(200) and rsi(14) > 62.5", "as_of": AS_OF}),
    ("explain", ("us5",), {"where": "close > sma(200)", "as_of": AS_OF}),
    ("panel", ("us5", SELECT), {"where": GOLDEN_CROSS, **SPAN, **LABELLED}),
    ("panel", ("us5", SELECT), {"where": GOLDEN_CROSS, **SPAN, **LABELLED, "scale": True, "matches_only": True}),
    ("panel", ("us5", ["sign(roc(a)) as s"]), {"folds": 3, "forward": [2], "lets": {"a": "5"}, "end": "today", "start": "2013-02-01"}),
    ("panel", ("demo", ["sector", "xs_rank(close) as r"]), {"start": "2024-12-02", "where": "close > 20"}),
    ("panel", ("demo-1m", ["close"]), {"start": "2024-12-05 10:00", "end": "2024-12-05 11:00"}),
    ("signals", ("us5",), {"where": GOLDEN_CROSS, **SPAN}),
    ("signals", ("us5",), {"where": GOLDEN_CROSS, **SPAN, "wide": False}),
    ("signals", ("us5", "1 == 2"), SPAN),
    ("features", ("us5", SELECT), {"window": 7, "where": GOLDEN_CROSS, **SPAN, **LABELLED}),
    ("features", ("us5", SELECT), {"window": 3, **SPAN, **LABELLED, "scale": True}),
    ("features", ("us5", SELECT), {"window": 3, **SPAN, "folds": 2}),
    ("features", ("us5", "rsi(14)"), {"window": 5, "where": "1 == 2", "matches_only": True, **SPAN}),
    ("features", ("us5",), {"window": 2, **SPAN, "forward": [1]}),
    ("study", ("us5",), {"where": "rsi(14) < 40", "horizons": [5, 1], "by": "year", "end": AS_OF}),
    ("study", ("demo", "close > sma(50)"), {"by": "sector"}),
    ("chart", ("us5", "IBM"), {"exprs": ["sma(close, 50)", "rsi(14)"], "as_of": AS_OF, "bars": 200}),
    ("chart", ("us5", "IBM", "sma(50)"), {"panel": "rsi(14) as '<b>\u00e9'", "overlay": ["highest(20)"], "volume": False, "size": (800, 600)}),
    ("chart", ("us5", "IBM"), {"marks": "rsi(14) < 40", "adjust": "split", "bars": 300}),
]  # fmt: skip


def same(ours, theirs, name):
    """Asserts that two results are equal in all that users see of them."""
    if isinstance(ours, tw.Features):
        for ours_of, theirs_of in ((ours.x, theirs.x), (ours.mask, theirs.mask), (ours.y, theirs.y)):
            mine, other = np.asarray(ours_of), np.from_dlpack(theirs_of)
            assert mine.dtype == other.dtype and mine.shape == other.shape and mine.tobytes() == other.tobytes(), name
        assert (ours.names, ours.labels, ours.scaler, repr(ours)) == (theirs.names, theirs.labels, theirs.scaler, repr(theirs)), name
        assert ours.index.equals(theirs.index) and ours.index.schema == theirs.index.schema, name
    elif isinstance(ours, tw.Chart):
        assert (ours.svg, ours.png(), ours.warnings, repr(ours)) == (theirs.svg, theirs.png(), theirs.warnings, repr(theirs)), name
    elif isinstance(ours, pl.DataFrame):
        assert ours.equals(theirs) and ours.schema == theirs.schema, name
    elif isinstance(ours, tw.Answer):
        assert ours == theirs and ours.to_bytes("csv") == theirs.to_bytes("csv"), name
    else:
        assert type(ours) is type(theirs) or isinstance(theirs, list), name
        assert (ours, repr(ours)) == (theirs, repr(theirs)), name


def walked(there):
    there_async = tw.AsyncRemote(there)
    for name, arguments, named in OPERATIONS:
        ours = getattr(tw, name)(*arguments, **named)
        same(ours, getattr(there, name)(*arguments, **named), (name, named))
        same(ours, asyncio.run(getattr(there_async, name)(*arguments, **named)), (name, named, "async"))


def test_every_method_of_a_server_gives_what_the_engine_here_gives():
    with served() as there:
        walked(there)
        answer = there.scan("us5", where="rsi(14) < least", lets={"least": "40"}, as_of=AS_OF)
        same(tw.chart("us5", "IBM", marks=answer, as_of=AS_OF), there.chart("us5", "IBM", marks=answer, as_of=AS_OF), "marks")
        assert there.indicator("RSI") == tw.indicator("rsi") and repr(there.indicator("rsi")) == repr(tw.indicator("rsi"))
        assert there.indicators("bollinger") == tw.indicators("bollinger") != tw.indicators() == there.indicators()
        assert there.datasets() == tw.datasets()


def test_every_method_of_a_coordinator_gives_what_the_engine_here_gives(tmp_path):
    with cluster(tmp_path) as there:
        walked(there)


def test_a_server_has_every_function_of_the_package_with_its_arguments():
    own = {"compute", "connect", "connect_async", "import_", "open"}
    functions = {name for name in tw.__all__ if inspect.isroutine(getattr(tw, name))} - own
    assert functions >= {"scan", "sweep", "panel", "features", "signals", "study", "chart", "near", "explain"}
    # Threads and the bar of progress are this machine's; a clause is one of the document's.
    here = {"threads", "progress", "root", "dataset", "values", "name"}
    clauses = set(inspect.signature(tw._document.document).parameters)
    for name in sorted(functions):
        ours = set(inspect.signature(getattr(tw, name)).parameters) - here - {"clauses"}
        theirs = inspect.signature(getattr(tw.Remote, name)).parameters
        taken = set(theirs) | (clauses if "clauses" in theirs else set())
        assert ours <= taken, (name, ours - taken)


def test_mistakes_are_those_of_the_engine_here():
    with served() as there:
        for name, arguments, named, said in [
            ("panel", ("us5", "clsoe"), {}, "unknown"),
            ("panel", ("us5", "close"), {"forward": [0]}, "forward: 0 is not a number"),
            ("panel", ("us5", "close"), {"embargo": 3}, "embargo is for training and test rows"),
            ("panel", ("us5", "close"), {"start": "2013-02-01", "end": "2013-01-04"}, "is after the last bar of the span"),
            ("signals", ("us5", "close > 1"), {"start": "2013-02-01", "end": "2013-01-04"}, "is after the last bar of the span"),
            ("features", ("us5", "close"), {"window": 0}, "window: 0 is not a number"),
            ("study", ("us5", "close > 1"), {"by": "sectr"}, "sectr"),
            ("study", ("us5", "close > 1"), {"start": "2013-02-01", "end": "2013-01-04"}, "is after the last bar of the span"),
            ("chart", ("us5", "IBMM"), {}, "IBMM"),
            ("chart", ("us5", "IBM", "smaa(5)"), {}, "smaa"),
            ("chart", ("us5", "IBM"), {"bars": 1}, "bars: 1 is not a number"),
            ("chart", ("us5", "IBM"), {"marks": "close >"}, "close >"),
            ("panel", ("us6", "close"), {}, "us6"),
        ]:  # fmt: skip
            found = []
            for place in (tw, there):
                with pytest.raises(tw.Mistake) as caught:
                    getattr(place, name)(*arguments, **named)
                assert said in str(caught.value), (name, named, str(caught.value))
                found.append(caught.value)
            assert found[0].mistakes == found[1].mistakes, name
        # A server's tensors come into main memory, whatever GPU is here.
        with pytest.raises(tw.Mistake, match="device='cuda'.*main memory") as caught:
            there.features("us5", "close", window=3, device="cuda")
        assert caught.value.mistakes[0].excerpt == "cuda" and caught.value.help
        with pytest.raises(tw.Mistake, match="is after the last bar of the span"):
            there.series("us5", "IBM", "rsi(14)", start="2013-02-01", end="2013-01-04")
