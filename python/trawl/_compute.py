"""Expressions on every bar of a frame."""

from __future__ import annotations

import difflib
from typing import Any

from . import _frames, _native
from ._document import Select, columns
from .errors import Mistake, call, checked_threads

#: Names that a column of symbols has where none is named.
SYMBOL_NAMES = ("symbol", "ticker")


def compute(
    frame: Any,
    exprs: Select,
    *,
    by: str | None = "auto",
    time: str | None = "auto",
    append: bool = False,
    calendar: str = "XNYS",
    tz: str | None = None,
    precision: str = "f64",
    threads: int | None = None,
    nulls: bool = True,
) -> Any:
    """Evaluates expressions on every bar of a frame, each symbol on its own: what ``trawl compute`` does with a file.

    ``frame`` is of polars (also lazy), pandas or pyarrow, or has ``__arrow_c_stream__``; its columns ``open``, ``high``, ``low``,
    ``close``, ``volume`` and others of numbers are named in the expressions. Columns of 64-bit floats without nulls in one piece are
    read where they are. ``by`` is the column of symbols (a frame without one is one symbol), ``time`` that of times, by which the bars
    of each symbol must be in order; ``'auto'`` takes ``symbol`` or ``ticker``, and ``time``, ``date``, ``datetime`` or ``timestamp``,
    else the only column of dates or timestamps, if the frame has them. Levels of an index of pandas count as columns, and stay in the
    index. ``tz`` is the zone of times without one, which functions of the calendar need; those that do not fit UTC are refused.

    The result is a frame of the same library with the symbols, the times and a column for each expression, or with
    ``append=True`` every column of the input; its rows are those of the input, in its order. Missing values are nulls, with
    ``nulls=False`` NaN. The lock of the interpreter is free meanwhile; ``threads`` is one for each core if not given.

    Within polars, ``lazy.map_batches(lambda whole: trawl.compute(whole, ...), validate_output_schema=False)`` is the same as
    ``trawl.compute(lazy, ...)``, which tells polars the columns of the result.

    >>> import trawl as tw, polars as pl
    >>> df = pl.DataFrame({"symbol": ["A"] * 3 + ["B"] * 3, "close": [1.0, 2.0, 3.0, 10.0, 20.0, 30.0]})
    >>> tw.compute(df, {"m": "sma(close, 2)"})["m"].to_list()
    [None, 1.5, 2.5, None, 15.0, 25.0]
    """
    texts = columns(exprs)
    if not texts:
        raise Mistake("no expression is given", help="give one, such as 'sma(close, 20)'")
    columns_ = _frames.column_names(frame)
    levels = _frames.levels_of(frame)
    names = [*columns_, *levels]
    lower: dict[str, str] = {}
    ambiguous: dict[str, str] = {}
    for name in names:
        if lower.setdefault(name.lower(), name) != name:
            ambiguous[name.lower()] = name
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Mistake(f"the frame has the column '{twice}' twice", help="give each column its own name")
    by = _symbols(frame, by, lower)
    time = _times(frame, time, lower, levels)
    for name in (by, time):
        if name is not None and name not in names:
            near = difflib.get_close_matches(name, names, 1)
            help = f"did you mean '{near[0]}'?" if near else "its columns: " + ", ".join(names)
            raise Mistake(f"the frame has no column '{name}'", help=help)
    keys = [name for name in (by, time) if name is not None]
    # What is in the index stays there.
    copied = columns_ if append else [name for name in keys if name not in levels]
    # The words of expressions are in lower case, as those of a file's columns.
    expressions = call(
        _native.Expressions, [n.lower() for n in names], texts, [n.lower() for n in copied], precision
    )
    read = [lower[name] for name in expressions.needs if name in lower]
    for name in expressions.needs:
        if name in ambiguous:
            both = f"'{lower[name]}' and '{ambiguous[name]}'"
            raise Mistake(f"'{name}' in an expression could be either of the columns {both}", help="rename one of them")
    taken = list(dict.fromkeys([*keys, *read])) or names[:1]
    if _frames.is_lazy(frame):
        named = {"by": by, "time": time, "append": append, "calendar": calendar, "tz": tz, "precision": precision}
        named.update({"threads": threads, "nulls": nulls})
        pl, schema = _frames.needed("polars"), frame.collect_schema()
        of = zip(expressions.headings, expressions.conditions)
        made_of = {heading: pl.Boolean if condition else pl.Float64 for heading, condition in of}
        schema = {**{name: schema[name] for name in copied}, **made_of}
        # All rows at once: a part of a symbol's bars would have other values.
        return frame.map_batches(lambda whole: compute(whole, texts, **named), schema=schema)
    table = _frames.selected(frame, taken, levels)
    made = call(expressions.run, table, by, time, calendar, checked_threads(threads) or 0, nulls, tz)
    return _frames.beside(frame, made, None if append else copied)


def _symbols(frame: Any, by: str | None, lower: dict[str, str]) -> str | None:
    if by != "auto":
        return by
    found = next((lower[known] for known in SYMBOL_NAMES if known in lower), None)
    if found is None and _frames.kind_of(frame) == "pandas" and frame.index.nlevels > 1:
        named = ", ".join(str(name) for name in frame.index.names)
        help = "by='NAME' names it; by=None takes all rows for one symbol"
        raise Mistake(f"which level of the index has the symbols? Its levels: {named}", help=help)
    return found


def _times(frame: Any, time: str | None, lower: dict[str, str], levels: dict[str, Any]) -> str | None:
    if time != "auto":
        return time
    found = next((lower[known] for known in _frames.TIME_NAMES if known in lower), None)
    if found is not None:
        return found
    # Without their times, bars that are not in order would not be noticed.
    found = [*_frames.times_in(frame), *(name for name, values in levels.items() if values.dtype.kind == "M")]
    if len(found) > 1:
        help = "time='NAME' names it; time=None leaves times out"
        raise Mistake(f"which column has the times of bars? There are {', '.join(found)}", help=help)
    return found[0] if found else None
