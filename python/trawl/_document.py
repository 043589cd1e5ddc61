"""Scan documents from Python's arguments: the keys of a TOML document, as JSON."""

from __future__ import annotations

import datetime
import json
import math
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

from . import _native
from .errors import Mistake, call

#: Select columns: expressions ('EXPR' or 'EXPR as NAME'), or names with expressions.
Select = Union[str, Sequence[str], Mapping[str, str]]
#: Values of a sweep's variable: a list, a range, or 'FROM:TO:STEP'.
Values = Union[str, range, Iterable[Union[int, float, str]]]


def columns(select: Select | None) -> list[str] | None:
    """Select columns as a document has them.

    >>> columns({"rsi": "rsi(14)"})
    ['rsi(14) as rsi']
    >>> columns("close")
    ['close']
    """
    if select is None:
        return None
    if isinstance(select, str):
        return [select]
    if isinstance(select, Mapping):
        return [f"{text} as {name}" for name, text in select.items()]
    return [str(text) for text in select]


def sweep_values(values: Values) -> Any:
    """Values of a sweep's variable as a document has them.

    >>> sweep_values("10:30:5")
    {'from': 10.0, 'to': 30.0, 'step': 5.0}
    >>> sweep_values(range(5, 21, 5))
    {'from': 5, 'to': 20, 'step': 5}
    >>> sweep_values([2, 3.5])
    [2, 3.5]
    >>> sweep_values("5,10")
    [5, 10]
    """
    if isinstance(values, str):
        parts = values.split(":")
        try:
            numbers = [float(part) for part in parts]
        except ValueError:
            return [_number_or_text(value.strip()) for value in values.split(",")]
        if len(numbers) in (2, 3):
            return {"from": numbers[0], "to": numbers[1], "step": numbers[2] if len(numbers) == 3 else 1.0}
        return numbers
    if isinstance(values, range) and len(values) > 1 and values.step > 0:
        return {"from": values[0], "to": values[-1], "step": values.step}
    return [value if isinstance(value, str) else _number(value) for value in values]


def together(conditions: str | Sequence[str] | None) -> str | None:
    """Several conditions as one.

    >>> together(["fast < slow", "slow <= 4 * fast"])
    '(fast < slow) and (slow <= 4 * fast)'
    """
    if conditions is None or isinstance(conditions, str):
        return conditions
    texts = list(conditions)
    return " and ".join(f"({text})" for text in texts) if len(texts) > 1 else next(iter(texts), None)


def _number(value: Any) -> int | float:
    number = float(value)
    if not math.isfinite(number):
        raise Mistake(f"a sweep has the value {value}", help="finite numbers, or texts")
    return int(value) if number.is_integer() else number


def _number_or_text(text: str) -> int | float | str:
    try:
        return _number(text) if "." not in text and "e" not in text.lower() else float(text)
    except ValueError:
        return text


def whole(name: str, value: Any) -> int | None:
    """A whole number, also one of NumPy.

    Raises :class:`Mistake` for anything else, and below 0.
    """
    if value is None:
        return None
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise Mistake(f"{name}={value!r} is not a whole number from 0")
    return number


def as_times(when: Any) -> tuple[str, str | None] | None:
    """A time as the engine reads it, and the date of one that is midnight: in bars of days that is what it means, since frames have the
    times of days so.

    >>> import datetime as dt
    >>> as_times("today"), as_times(dt.date(2024, 1, 5)), as_times(dt.datetime(2024, 1, 5))
    (('today', None), ('2024-01-05', None), ('2024-01-05 00:00:00', '2024-01-05'))
    """
    if when is None:
        return None
    # A datetime64 of NumPy; those of a day are dates.
    if not isinstance(when, (str, datetime.date)) and hasattr(when, "astype"):
        when = when.astype("datetime64[us]").item() if str(when).find("T") > 0 else str(when)
    if isinstance(when, datetime.datetime):
        at_midnight = when.time() == datetime.time()
        return str(when), when.date().isoformat() if at_midnight else None
    return str(when), None


class Document:
    """A scan document, and the file that it is from."""

    def __init__(self, keys: dict[str, Any], file: str | None = None, text: str | None = None) -> None:
        self.keys = keys
        self.file = file
        self.text = text

    def json(self) -> str:
        """As JSON."""
        return json.dumps(self.keys)


def document(
    dataset: str | None,
    *,
    where: str | None = None,
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
    adjust: str | None = None,
    precision: str | None = None,
    history: int | None = None,
    origin: bool = False,
    max_age: str | None = None,
    forming: bool = False,
    timeframe: str | None = None,
    name: str | None = None,
    file: str | os.PathLike[str] | None = None,
) -> Document:
    """The document of a scan; arguments take precedence over the clauses of ``file``."""
    keys: dict[str, Any] = {}
    text = None
    if file is not None:
        file = os.fspath(file)
        read, text = call(_native.read_document, file)
        keys = json.loads(read)
    plain = {
        "dataset": dataset,
        "where": where,
        "rank": rank if rank is None or isinstance(rank, str) else ", ".join(rank),
        "select": columns(select),
        "universe": universe,
        "limit": whole("limit", limit),
        "sweep_where": together(sweep_where),
        "adjust": adjust,
        "precision": precision,
        "max_age": max_age,
        "timeframe": timeframe,
        "name": name,
    }
    keys.update({key: value for key, value in plain.items() if value is not None})
    if watchlist is not None:
        if isinstance(watchlist, str):
            raise Mistake(f"watchlist='{watchlist}' is one text", help="a list of symbols, such as ['AAPL', 'IBM']")
        symbols = sorted({str(symbol) for symbol in watchlist})
        wrong = next((symbol for symbol in symbols if "'" in symbol), None)
        if wrong is not None or not symbols:
            what = f"has no symbol of this name: {wrong}" if symbols else "has no symbols"
            raise Mistake(f"the watchlist {what}", help="names of the dataset's symbols, without quotes")
        listed = "symbol in (" + ", ".join(f"'{symbol}'" for symbol in symbols) + ")"
        keys["universe"] = f"{listed} and ({keys['universe']})" if keys.get("universe") else listed
    if lets:
        # Truths of the language are written small.
        texts = {key: str(text).lower() if isinstance(text, bool) else str(text) for key, text in lets.items()}
        keys["let"] = {**keys.get("let", {}), **texts}
    if defs:
        own = {signature.split("(")[0].strip() for signature in defs}
        kept = {s: t for s, t in keys.get("def", {}).items() if s.split("(")[0].strip() not in own}
        keys["def"] = {**kept, **dict(defs)}
    if sweep:
        keys["sweep"] = {**keys.get("sweep", {}), **{key: sweep_values(values) for key, values in sweep.items()}}
    if best is not None:
        keys["best"] = {"by": best, "keep": 1 if keep is None else whole("keep", keep)}
    elif keep is not None:
        if not keys.get("best"):
            raise Mistake("keep needs best", help="add best with the value to choose by, such as best='roc(close, n)'")
        keys["best"]["keep"] = whole("keep", keep)
    if history is not None:
        keys["history"] = {"bars": whole("history", history), "origin": bool(origin)}
    elif origin:
        if not keys.get("history"):
            raise Mistake("origin needs history", help="add the number of bars, such as history=500")
        keys["history"]["origin"] = True
    if forming:
        keys["forming"] = True
    if not keys.get("where") and not keys.get("scan"):
        raise Mistake("the scan has no condition", help="give the condition, such as where='rsi(close, 14) < 30'")
    return Document(keys, file, text)


def pinned(scan: dict[str, Any], identity: dict[str, Any]) -> dict[str, Any]:
    """The scan of an answer over the snapshot and at the bar that the answer is of: questions about it are not about newer bars.

    >>> pinned({"dataset": "us5", "where": "true"}, {"dataset": "us5", "snapshot": "31cc", "as_of": "2013-02-22"})
    {'document': {'dataset': 'us5@31cc', 'where': 'true'}, 'as_of': '2013-02-22'}
    """
    return {"document": {**scan, "dataset": f"{identity['dataset']}@{identity['snapshot']}"}, "as_of": identity["as_of"]}
