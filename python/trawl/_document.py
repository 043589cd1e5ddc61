"""Scan documents from Python's arguments: the keys of a TOML document, as JSON."""

from __future__ import annotations

import json
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
    """
    if isinstance(values, str):
        parts = values.split(":")
        try:
            numbers = [float(part) for part in parts]
        except ValueError:
            return [value.strip() for value in values.split(",")]
        if len(numbers) in (2, 3):
            return {"from": numbers[0], "to": numbers[1], "step": numbers[2] if len(numbers) == 3 else 1.0}
        return numbers
    if isinstance(values, range) and len(values) > 1 and values.step > 0:
        return {"from": values[0], "to": values[-1], "step": values.step}
    return [value if isinstance(value, str) else _number(value) for value in values]


def _number(value: Any) -> int | float:
    return int(value) if float(value).is_integer() else float(value)


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
    sweep_where: str | None = None,
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
        "limit": limit,
        "sweep_where": sweep_where,
        "adjust": adjust,
        "precision": precision,
        "max_age": max_age,
        "timeframe": timeframe,
        "name": name,
    }
    keys.update({key: value for key, value in plain.items() if value is not None})
    if watchlist is not None:
        symbols = sorted({str(symbol) for symbol in watchlist})
        listed = "symbol in (" + ", ".join(f"'{symbol}'" for symbol in symbols) + ")"
        keys["universe"] = f"{listed} and ({keys['universe']})" if keys.get("universe") else listed
    if lets:
        keys["let"] = {**keys.get("let", {}), **{key: str(text) for key, text in lets.items()}}
    if defs:
        own = {signature.split("(")[0].strip() for signature in defs}
        kept = {s: t for s, t in keys.get("def", {}).items() if s.split("(")[0].strip() not in own}
        keys["def"] = {**kept, **dict(defs)}
    if sweep:
        keys["sweep"] = {**keys.get("sweep", {}), **{key: sweep_values(values) for key, values in sweep.items()}}
    if best is not None:
        keys["best"] = {"by": best, "keep": keep or 1}
    elif keep is not None:
        if not keys.get("best"):
            raise Mistake("keep needs best", help="add best with the value to choose by, such as best='roc(close, n)'")
        keys["best"]["keep"] = keep
    if history is not None:
        keys["history"] = {"bars": history, "origin": origin}
    if forming:
        keys["forming"] = True
    if not keys.get("where") and not keys.get("scan"):
        raise Mistake("the scan has no condition", help="give the condition, such as where='rsi(close, 14) < 30'")
    return Document(keys, file, text)
