"""Scans of a dataset: answers, panels, signals, sweeps, studies."""

from __future__ import annotations

import atexit
import datetime
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

from . import _frames, _native
from ._document import Document, Select, Values, as_times, document, whole
from ._engine import LocalSource, engine_of, root_of, user_folder
from ._progress import Bar
from .answer import Answer
from .dataset import Dataset, checked_name
from .errors import Mistake, Place, call, checked_threads, draw

#: A dataset, or the name of one of the data root.
Bars = Union[Dataset, str, None]
#: A bar: a date or a time as text, ``'now'``, ``'today'``, ``'last-session'``, or one of Python, pandas or NumPy. A midnight of these is
#: the date for bars of days, as frames have it.
Time = Union[str, datetime.date, Any, None]


def _of(dataset: Bars, clauses: dict[str, Any]) -> tuple[_native.Engine, Document]:
    if isinstance(dataset, Dataset):
        return dataset._engine, document(dataset.identity, **clauses)
    made = document(checked_name(dataset), **clauses)
    if not made.keys.get("dataset"):
        help = "give it first, such as trawl.scan('us5', ...); trawl.datasets() lists them"
        raise Mistake("which dataset is to be scanned?", help=help)
    return engine_of(None), made


def prepared(dataset: Bars, as_of: Time, clauses: dict[str, Any]) -> _native.Scan:
    """Opens the dataset and compiles the scan."""
    engine, made = _of(dataset, clauses)
    return call(engine.prepare, made.json(), as_times(as_of), made.file, made.text)


def scan(
    dataset: Bars = None,
    where: str | None = None,
    *,
    rank: str | Sequence[str] | None = None,
    select: Select | None = None,
    universe: str | None = None,
    watchlist: Iterable[str] | None = None,
    limit: int | None = None,
    lets: Mapping[str, str] | None = None,
    defs: Mapping[str, str] | None = None,
    sweep: Mapping[str, Values] | None = None,
    sweep_where: str | Sequence[str] | None = None,
    best: str | None = None,
    keep: int | None = None,
    as_of: Time = None,
    file: str | os.PathLike[str] | None = None,
    adjust: str | None = None,
    precision: str | None = None,
    history: int | None = None,
    origin: bool = False,
    max_age: str | None = None,
    forming: bool = False,
    timeframe: str | None = None,
    name: str | None = None,
    values: str = "matches",
    threads: int | None = None,
    deadline_s: float | None = None,
    allow_partial: bool = False,
    progress: bool | None = None,
) -> Answer:
    """Finds the symbols of a dataset that fulfil a condition at one bar.

    The clauses are those of ``trawl scan``: ``where`` is the condition, ``select`` the columns (``['close', 'rsi(14) as rsi']`` or
    ``{'rsi': 'rsi(14)'}``), ``universe`` which symbols are scanned at all, ``rank`` the order of the matches. ``file`` is a TOML
    document whose clauses the arguments replace. ``as_of`` is a date, a time on the exchange's clock, ``'now'``, ``'today'`` or
    ``'last-session'``, or a date or time of Python; the newest closed bar if it is not given. ``values='all'`` gives select columns of symbols that do not
    match. Ctrl-C cancels.

    The answer is equal to the command line's, byte for byte, on any number of threads.

    >>> import trawl as tw
    >>> answer = tw.scan("us5", where="rsi(close, 14) > 60", select={"rsi": "rsi(close, 14)"}, rank="rsi(close, 14)",
    ...                  as_of="2013-02-22")
    >>> [(row["symbol"], round(row["rsi"], 2)) for row in answer]
    [('GOOG', 67.61)]
    """
    clauses = {
        "where": where, "rank": rank, "select": select, "universe": universe, "watchlist": watchlist, "limit": limit,
        "lets": lets, "defs": defs, "sweep": sweep, "sweep_where": sweep_where, "best": best, "keep": keep,
        "adjust": adjust, "precision": precision, "history": history, "origin": origin, "max_age": max_age,
        "forming": forming, "timeframe": timeframe, "name": name, "file": file,
    }  # fmt: skip
    if values not in ("matches", "all"):
        raise Mistake(f"values='{values}' is not known", help="'matches' or 'all'")
    opened = prepared(dataset, as_of, clauses)
    with Bar(progress) as bar:
        answer = call(opened.run, checked_threads(threads), deadline_s, allow_partial, values == "all", bar.tick)
    root = dataset._root if isinstance(dataset, Dataset) else root_of(None)
    return Answer(LocalSource(opened, answer, root, (allow_partial, values == "all")))


def sweep(
    dataset: Bars,
    where: str | None = None,
    *,
    over: Mapping[str, Values],
    **clauses: Any,
) -> Answer:
    """Scans for every combination of the values of ``over``; the answer has a row for each symbol and combination.

    ``best='roc(close, n)'`` with ``keep=1`` keeps for each symbol the combination with the largest value; ``sweep_where`` is a
    condition on the combinations, such as ``'fast < slow'``, or several of them. Everything else is as in :func:`scan`.

    >>> import trawl as tw
    >>> answer = tw.sweep("us5", where="crosses_above(sma(close, fast), sma(close, slow))", as_of="2013-02-22",
    ...                   over={"fast": [5, 10], "slow": range(20, 41, 10)})
    >>> len(answer), answer.counts["symbols"]
    (30, 5)
    """
    return scan(dataset, where, sweep=over, **clauses)


def panel(
    dataset: Bars,
    select: Select | None = None,
    *,
    where: str = "true",
    start: Time = None,
    end: Time = None,
    forward: Sequence[int] = (),
    matches_only: bool = False,
    split: Time = None,
    folds: int | None = None,
    embargo: int = 0,
    scale: bool = False,
    threads: int | None = None,
    progress: bool | None = None,
    **clauses: Any,
) -> Any:
    """A scan's columns over history: a row for each symbol and bar that has one, for models and backtests, as ``trawl panel``.

    ``select`` are the features; ``forward=[1, 5]`` adds the returns over the next bars as ``forward_1`` and ``forward_5``, null where
    they are not known yet. A feature at a bar reads no later bar. ``split`` or ``folds`` with ``embargo`` add what a row is for;
    ``scale=True`` scales the features by mean and deviation of the training rows of ``split``. The result is a frame of polars, or of
    pandas or pyarrow where polars is not installed.

    >>> import trawl as tw
    >>> frame = tw.panel("us5", {"rsi": "rsi(14)"}, start="2013-02-19", end="2013-02-22", forward=[1])
    >>> frame.columns, frame.height
    (['time', 'symbol', 'rsi', 'matched', 'forward_1'], 20)
    """
    opened = prepared(dataset, end, {"where": where, "select": select, **clauses})
    with Bar(progress, "parts") as bar:
        table, _ = call(
            opened.panel, as_times(start), [whole("forward", bars) for bars in forward], matches_only, as_times(split), whole("folds", folds), whole("embargo", embargo), scale, checked_threads(threads), bar.tick
        )
    return _frames.default(table)


class Features:
    """A scan over history as tensors, in this machine's main memory or in that of a GPU (``found.x.device``).

    ``x`` has the features, ``[sample, window, feature]`` in single precision and 0 where there is no value, ``mask`` says where there is one,
    ``y`` has the labels, ``[sample, horizon]`` with NaN where they are not known. Each has ``__dlpack__``: ``torch.from_dlpack(found.x)``
    copies nothing, and neither does ``numpy.from_dlpack`` or ``numpy.asarray`` of main memory. ``index`` has time, symbol and use of each
    sample, always in main memory.
    """

    x: _native.Tensor
    mask: _native.Tensor
    y: _native.Tensor

    def __init__(self, made: tuple[Any, ...]) -> None:
        self.x, self.mask, self.y, self._index, names, labels, scaler = made
        #: Names of the features, and of the labels.
        self.names: list[str] = names
        self.labels: list[str] = labels
        #: Mean and deviation of each feature that was scaled; ``None`` without ``scale``.
        self.scaler: Any = None if scaler is None else json.loads(scaler)

    @property
    def index(self) -> Any:
        """A row for each sample, as a frame of polars, or of pandas or pyarrow where polars is not installed."""
        return _frames.default(self._index)

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        samples, window, features = self.x.shape
        return f"<Features: {samples} samples, windows of {window} bars, {features} features, {len(self.labels)} labels>"


def of_main_memory(device: str) -> Mistake:
    """What a server's tensors are not on."""
    message = f"device='{device}': the tensors of a server come into main memory"
    help = "leave it out; torch.from_dlpack(found.x).to('cuda') copies once"
    place = Place(message, "device", device, 0, len(device), "'cpu'", help)
    return Mistake(message, help=help, mistakes=[place], drawing=draw(place))


def checked_device(device: str) -> tuple[str, str] | None:
    """Where tensors are wanted on a GPU, with the folder of compiled kernels; ``None`` for main memory."""
    if device == "cpu":
        return None
    global _CLOSES
    if not _CLOSES:
        # While the interpreter still lives: a process that ends while a kernel is compiled may crash.
        atexit.register(_native.close_devices)
        _CLOSES = True
    return device, os.path.join(user_folder("XDG_CACHE_HOME", ".cache"), "kernels")


#: Whether devices are closed when the interpreter ends.
_CLOSES = False


def features(
    dataset: Bars,
    select: Select | None = None,
    *,
    window: int,
    where: str = "true",
    start: Time = None,
    end: Time = None,
    forward: Sequence[int] = (),
    matches_only: bool = False,
    split: Time = None,
    folds: int | None = None,
    embargo: int = 0,
    scale: bool = False,
    device: str = "cpu",
    threads: int | None = None,
    progress: bool | None = None,
    **clauses: Any,
) -> Features:
    """Features and labels over history as tensors, those of ``trawl panel --tensors``: windows of the last ``window`` bars.

    Arguments are those of :func:`panel`. ``device`` is where the tensors are: ``'cpu'``, ``'cuda'`` (the first GPU that can be used) or
    ``'cuda:1'``. On a GPU features are computed there and never come to main memory; the values are the same, bit for bit. Without a GPU
    that is a :class:`Mistake` with its reason.

    >>> import trawl as tw
    >>> tw.features("us5", {"rsi": "rsi(14)"}, window=5, start="2013-02-19", end="2013-02-22", forward=[1])
    <Features: 20 samples, windows of 5 bars, 1 features, 1 labels>
    """
    place = checked_device(device)
    opened = prepared(dataset, end, {"where": where, "select": select, **clauses})
    ahead = [whole("forward", bars) for bars in forward]
    with Bar(progress, "parts") as bar:
        made = call(
            opened.features, as_times(start), ahead, matches_only, as_times(split), whole("folds", folds), whole("embargo", embargo), scale,
            whole("window", window), place, checked_threads(threads), bar.tick,
        )  # fmt: skip
    return Features(made)


def signals(
    dataset: Bars,
    where: str | None = None,
    *,
    start: Time = None,
    end: Time = None,
    wide: bool = True,
    threads: int | None = None,
    progress: bool | None = None,
    **clauses: Any,
) -> Any:
    """Where a condition holds over history: with ``wide=True`` a frame with a row for each time and a column of true and false for each
    symbol, as vectorbt takes it; else a row with time and symbol for each match.

    >>> import trawl as tw
    >>> frame = tw.signals("us5", where="close > sma(close, 200)", start="2013-02-19", end="2013-02-22")
    >>> frame.columns, frame.height
    (['time', 'AAPL', 'FB', 'GOOG', 'IBM', 'MSFT'], 4)
    """
    opened = prepared(dataset, end, {"where": where, **clauses})
    with Bar(progress, "parts") as bar:
        table = call(opened.signals, as_times(start), wide, checked_threads(threads), bar.tick)
    return _frames.default(table)


def study(
    dataset: Bars,
    where: str | None = None,
    *,
    horizons: Sequence[int] = (1, 5, 20),
    by: str | None = None,
    start: Time = None,
    end: Time = None,
    threads: int | None = None,
    progress: bool | None = None,
    **clauses: Any,
) -> Study:
    """What followed the matches of a scan: returns over the next bars, against all symbols, as ``trawl study``.

    ``by`` is a label such as ``'sector'``, a period of the bars (``'year'``, ``'quarter'``, ``'month'``, ``'weekday'``), or dates that
    divide them, with commas. No costs and no slippage: it says what followed, not what could have been earned.

    >>> import trawl as tw
    >>> found = tw.study("us5", where="rsi(close, 14) < 30", horizons=[5])
    >>> found[0]["horizon"], found[0]["matches"] > 0
    (5, True)
    """
    opened = prepared(dataset, end, {"where": where, **clauses})
    with Bar(progress, "parts") as bar:
        found = json.loads(call(opened.study, [whole("horizons", bars) for bars in horizons], by, as_times(start), checked_threads(threads), bar.tick))
    return Study(found)


class Study(list[dict[str, Any]]):
    """Figures of a study, one entry for each horizon and group; fractions are fractions (0.01 is one percent)."""

    @property
    def df(self) -> Any:
        """As a frame of polars, else of pandas."""
        pl = _frames.imported("polars")
        if pl is not None:
            return pl.DataFrame(list(self))
        return _frames.needed("pandas").DataFrame(list(self))

    def __repr__(self) -> str:
        names = ["group", "horizon", "matches", "hit_rate", "mean", "universe_mean", "excess", "t"]
        if all(row["group"] is None for row in self):
            names = names[1:]
        cells = [names] + [[_figure(row[name], name) for name in names] for row in self]
        widths = [max(len(line[at]) for line in cells) for at in range(len(names))]
        return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths)) for line in cells)


def _figure(value: Any, name: str) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.2f}" if name == "t" else f"{100 * value:.2f}%"
    return str(value)


class Explanation(dict[str, Any]):
    """What a scan needs and costs; nothing was run."""

    def __repr__(self) -> str:
        def named(symbols: list) -> str:
            listed = ", ".join(f"{item['symbol']} ({item['bars']})" for item in symbols[:5])
            return f": {listed}" if listed else ""

        short, some = self["too_short"], self["too_short_for_some"]
        lines = [
            f"dataset     {self['dataset']}, {self['timeframe']} bars",
            f"as of       {self['as_of']}",
            f"needs       {self['bars_needed'][1]} bars of a symbol before the condition has a value",
            f"too short   {len(short)} of {self['symbols']} symbols{named(short)}",
            *([f"            {len(some)} more for some of the {self['combinations']} combinations{named(some)}"] if some else []),
            f"reads       {self['bars']} bars: {', '.join(self['columns'])}",
            f"cost        about {self['cost_ns'] / 1e6:.1f} ms of one core, without reading",
            f"plan        {self['steps']} steps, {self['plan'][:12]}",
        ]
        lines += ["", *self.get("plan_steps", [])]
        return "\n".join(lines)


def explain(dataset: Bars = None, where: str | None = None, *, as_of: Time = None, **clauses: Any) -> Explanation:
    """How many bars a scan needs, which symbols have too few, what it costs, and its steps. Nothing is run.

    >>> import trawl as tw
    >>> tw.explain("us5", where="close > sma(close, 200)", as_of="2013-02-22")["bars_needed"]
    [200, 200]
    """
    found, plan = call(prepared(dataset, as_of, {"where": where, **clauses}).explain)
    return Explanation({**json.loads(found), "plan_steps": plan.splitlines()})


def near(
    dataset: Bars = None, where: str | None = None, *, most: int = 1, as_of: Time = None, **clauses: Any
) -> list[dict[str, Any]]:
    """Symbols that do not match because of at most ``most`` terms joined by 'and', and which terms these are.

    >>> import trawl as tw
    >>> [miss["symbol"] for miss in tw.near("us5", where="close > sma(200) and rsi(14) > 62.5", as_of="2013-02-22")]
    ['IBM']
    """
    return json.loads(call(prepared(dataset, as_of, {"where": where, **clauses}).near, whole("most", most)))
