"""Frames in and out: polars, pandas, pyarrow, and anything with the Arrow C stream interface. None of them is required."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from . import _native
from .errors import Mistake

#: Names that a column of times has where none is named.
TIME_NAMES = ("time", "date", "datetime", "timestamp")
#: Libraries of frames in the order in which results prefer them.
LIBRARIES = ("polars", "pandas", "pyarrow")


def imported(name: str) -> Any | None:
    """The library, if it is installed."""
    try:
        return __import__(name)
    except ImportError:
        return None


def needed(name: str) -> Any:
    """The library.

    Raises :class:`ImportError` with what to install.
    """
    library = imported(name)
    if library is None:
        raise ImportError(f"{name} is not installed: pip install {name}")
    return library


def kind_of(frame: Any) -> str:
    """``polars``, ``pandas``, ``pyarrow`` or ``arrow`` (anything with ``__arrow_c_stream__``)."""
    module = type(frame).__module__.split(".")[0]
    if module in LIBRARIES:
        return module
    if hasattr(frame, "__arrow_c_stream__"):
        return "arrow"
    raise TypeError(
        f"a frame of polars, pandas or pyarrow, or a table with __arrow_c_stream__ is expected, not {type(frame).__name__}"
    )


def to_polars(table: _native.Table) -> Any:
    """As a frame of polars; numbers and times stay where they are."""
    pl = needed("polars")
    return pl.DataFrame(table)


def to_arrow(table: _native.Table) -> Any:
    """As a table of pyarrow, without a copy."""
    return needed("pyarrow").table(table)


def to_pandas(table: _native.Table) -> Any:
    """As a frame of pandas. pyarrow is not needed."""
    pd = needed("pandas")
    return pd.DataFrame({name: series(table, at) for at, name in enumerate(table.names)}, copy=False)


def series(table: _native.Table, at: int, *, own: bool = False) -> Any:
    """A column for a frame of pandas: numbers as NumPy has them without a copy where the table is one piece. ``own``: nobody else has the
    table, so that its numbers may be changed."""
    np, pd = needed("numpy"), needed("pandas")
    kind = table.kinds[at]
    if kind in ("f64", "time"):
        parts = [np.asarray(part) for part in table.array(at, own)]
        values = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(0)
        if kind == "f64":
            return values if values.flags.writeable else values.copy()
        return pd.Series(values.astype("datetime64[us]")).dt.tz_localize("UTC")
    values = table.values(at)
    if kind == "bool":
        return pd.array(values, dtype="boolean" if None in values else "bool")
    if kind == "whole":
        return pd.array(values, dtype="Int64" if None in values else "int64")
    if kind == "date":
        return pd.to_datetime(pd.Series(values, dtype="float64"), unit="D")
    return values


def default(table: _native.Table) -> Any:
    """A frame of the library that is installed: polars, else pandas, else pyarrow, else the table itself."""
    for name, make in (("polars", to_polars), ("pandas", to_pandas), ("pyarrow", to_arrow)):
        if imported(name) is not None:
            return make(table)
    return table


def as_kind(table: _native.Table, kind: str) -> Any:
    """A frame of the library ``kind``."""
    return {"polars": to_polars, "pandas": to_pandas, "pyarrow": to_arrow}.get(kind, default)(table)


def rows(table: _native.Table) -> list[dict[str, Any]]:
    """Every row as a dictionary."""
    columns = [table.values(at) for at in range(len(table.names))]
    return [dict(zip(table.names, row)) for row in zip(*columns)]


def column_names(frame: Any) -> list[str]:
    """Names of a frame's columns."""
    kind = kind_of(frame)
    if kind == "polars":
        return list(frame.collect_schema().names()) if hasattr(frame, "collect_schema") else list(frame.columns)
    if kind == "pandas":
        if frame.columns.nlevels > 1:
            levels = ", ".join(str(name) for name in frame.columns.names)
            help = "one row for each symbol and time is expected, as of frame.stack(level=1)"
            raise Mistake(f"the frame's columns have {frame.columns.nlevels} levels ({levels})", help=help)
        return [str(name) for name in frame.columns]
    if kind == "pyarrow":
        return list(frame.column_names)
    names = getattr(frame, "names", None)
    if names is None:
        raise TypeError(f"the columns of a {type(frame).__name__} are not known: make it a frame of polars or pyarrow")
    return list(names)


def selected(frame: Any, columns: Sequence[str], levels: dict[str, Any]) -> Any:
    """A table of these columns and levels of its index, which the engine takes by the Arrow C stream interface."""
    kind = kind_of(frame)
    if kind == "polars":
        # Columns of one piece are handed over as they are.
        return frame.select(list(columns)).rechunk()
    if kind == "pandas":
        return of_pandas(frame, columns, levels)
    if kind == "pyarrow":
        return frame.select(list(columns))
    return frame


def levels_of(frame: Any) -> dict[str, Any]:
    """The levels of the index of a frame of pandas by their names. One of times without a name is ``time``, if no column has the times;
    others without a name and those that are called as a column are left out."""
    if kind_of(frame) != "pandas":
        return {}
    pd, columns = needed("pandas"), {str(column) for column in frame.columns}
    timed = any(column.lower() in TIME_NAMES for column in columns)
    levels = {}
    for at, name in enumerate(frame.index.names):
        values = frame.index.get_level_values(at)
        if name is None and not timed and isinstance(values, pd.DatetimeIndex):
            name = "time"
        if name is not None and str(name) not in columns:
            levels.setdefault(str(name), pd.Series(values))
    return levels


def times_in(frame: Any) -> list[str]:
    """Names of the columns of dates and timestamps."""
    kind = kind_of(frame)
    if kind == "polars":
        pl, schema = needed("polars"), frame.collect_schema()
        return [name for name, dtype in schema.items() if dtype in (pl.Date, pl.Datetime)]
    if kind == "pandas":
        return [str(name) for name, dtype in zip(frame.columns, frame.dtypes) if getattr(dtype, "kind", "") == "M"]
    if kind == "pyarrow":
        types = needed("pyarrow").types
        return [field.name for field in frame.schema if types.is_date(field.type) or types.is_timestamp(field.type)]
    return []


def of_pandas(frame: Any, columns: Iterable[str], levels: dict[str, Any] | None = None) -> _native.Table:
    """Columns of a frame of pandas, and levels of its index: numbers where they are, if they are 64-bit floats in one piece, else copied
    once; pyarrow is not needed."""
    at = {str(name): place for place, name in reversed(list(enumerate(frame.columns)))}
    parts = [(name, *_part(frame.iloc[:, at[name]] if name in at else (levels or {})[name], name)) for name in columns]
    return _native.table_of_arrays(parts)


def _part(column: Any, name: str) -> tuple[str, Any]:
    """A column of pandas as the engine takes it: what it is, and its array."""
    pd, np = needed("pandas"), needed("numpy")
    if _all_dates(column):
        try:
            column = pd.to_datetime(column)
        except (ValueError, TypeError) as error:
            raise Mistake(f"the column '{name}' has times of several kinds: {error}", help="make it a column of timestamps") from None
    dtype = column.dtype
    kind = getattr(dtype, "kind", "O")
    zone = getattr(dtype, "tz", None) or getattr(getattr(dtype, "pyarrow_dtype", None), "tz", None)
    if kind == "M" and zone is not None:
        micros = column.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy(dtype="datetime64[us]")
        return f"M8:{_zone_name(zone)}", in_one_piece(np, micros)
    if kind == "M":
        return "M8", in_one_piece(np, column.to_numpy(dtype="datetime64[us]"))
    # Whole numbers stay exact: they may be names of symbols. One that is missing makes them numbers.
    if kind in "iu" and not column.isna().any() and (kind == "i" or len(column) == 0 or int(column.max()) < 2**63):
        return "i8", in_one_piece(np, column.to_numpy(dtype="int64"))
    if kind in "fiub":
        values = column.to_numpy(dtype="float64", na_value=np.nan)
        return "f8", in_one_piece(np, values)
    codes, texts = pd.factorize(column)
    return "category", (in_one_piece(np, np.asarray(codes, dtype="int64")), [str(text) for text in texts])


def in_one_piece(np: Any, values: Any) -> Any:
    """An array whose memory the engine reads: the same one, unless it has gaps or is not aligned."""
    return np.require(values, requirements=("C", "A"))


def _zone_name(zone: Any) -> str:
    """The name of a zone, or an offset such as ``+02:00``."""
    name = getattr(zone, "key", None) or getattr(zone, "zone", None) or str(zone)
    # Offsets of Python are called UTC-05:00.
    return name[3:] if name.startswith(("UTC+", "UTC-")) else name


def _all_dates(column: Any) -> bool:
    import datetime

    if column.dtype != object:
        return False
    known = column.dropna()
    return len(known) > 0 and isinstance(known.iloc[0], datetime.date)


def beside(frame: Any, table: _native.Table, keys: Sequence[str] | None) -> Any:
    """``table`` as columns beside those of ``frame``: all of them, or ``keys`` alone."""
    kind = kind_of(frame)
    if keys is not None and not keys and kind != "pandas":
        return as_kind(table, kind)
    if kind == "polars":
        kept = frame if keys is None else frame.select(list(keys))
        return kept.hstack(to_polars(table))
    if kind == "pandas":
        pd = needed("pandas")
        kept = frame if keys is None else frame.iloc[:, [[str(name) for name in frame.columns].index(key) for key in keys]]
        made = pd.DataFrame(
            {name: series(table, at, own=True) for at, name in enumerate(table.names)}, index=frame.index, copy=False
        )
        return pd.concat([kept, made], axis=1)
    if kind == "pyarrow":
        kept = frame if keys is None else frame.select(list(keys))
        made = to_arrow(table)
        for name in made.column_names:
            kept = kept.append_column(name, made.column(name))
        return kept
    return default(table)


def is_lazy(frame: Any) -> bool:
    """Whether it is a lazy frame of polars."""
    pl = sys.modules.get("polars")
    return pl is not None and isinstance(frame, pl.LazyFrame)
