"""Frames in and out: polars, pandas, pyarrow, and anything with the Arrow C stream interface. None of them is required."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from . import _native
from .errors import Mistake

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


def series(table: _native.Table, at: int) -> Any:
    """A column for a frame of pandas: numbers as NumPy has them without a copy where the table is one piece."""
    np, pd = needed("numpy"), needed("pandas")
    kind = table.kinds[at]
    if kind in ("f64", "time"):
        parts = [np.asarray(part) for part in table.array(at)]
        values = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(0)
        if kind == "f64":
            return values
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
        return [str(name) for name in frame.columns]
    if kind == "pyarrow":
        return list(frame.column_names)
    names = getattr(frame, "names", None)
    if names is None:
        raise TypeError(f"the columns of a {type(frame).__name__} are not known: make it a frame of polars or pyarrow")
    return list(names)


def selected(frame: Any, columns: Sequence[str]) -> Any:
    """A table of these columns, which the engine takes by the Arrow C stream interface."""
    kind = kind_of(frame)
    if kind == "polars":
        # Columns of one piece are handed over as they are.
        return frame.select(list(columns)).rechunk()
    if kind == "pandas":
        return of_pandas(frame, columns)
    if kind == "pyarrow":
        return frame.select(list(columns))
    return frame


def of_pandas(frame: Any, columns: Iterable[str]) -> _native.Table:
    """Columns of a frame of pandas. Each is copied once; pyarrow is not needed."""
    pd, np = needed("pandas"), needed("numpy")
    parts: list[tuple[str, str, Any]] = []
    for name in columns:
        column = frame[name]
        dtype = column.dtype
        if isinstance(dtype, pd.DatetimeTZDtype):
            micros = column.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy().astype("datetime64[us]")
            parts.append((name, "M8", _known_times(np, micros, name).tobytes()))
        elif dtype.kind == "M":
            micros = column.to_numpy().astype("datetime64[us]")
            parts.append((name, "M8n", _known_times(np, micros, name).tobytes()))
        elif dtype.kind in "fiub":
            values = column.to_numpy(dtype="float64", na_value=np.nan)
            parts.append((name, "f8", np.ascontiguousarray(values).tobytes()))
        elif _all_dates(column):
            micros = pd.to_datetime(column).to_numpy().astype("datetime64[us]")
            parts.append((name, "M8n", _known_times(np, micros, name).tobytes()))
        else:
            codes, texts = pd.factorize(column)
            parts.append((name, "category", (np.asarray(codes, dtype="int64").tobytes(), [str(text) for text in texts])))
    return _native.table_of_bytes(parts)


def _known_times(np: Any, micros: Any, name: str) -> Any:
    if np.isnat(micros).any():
        raise Mistake(f"the column '{name}' has rows without a time", help="drop them, or fill them in")
    return np.ascontiguousarray(micros)


def _all_dates(column: Any) -> bool:
    import datetime

    if column.dtype != object or len(column) == 0:
        return False
    return isinstance(column.iloc[0], datetime.date)


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
        kept = frame if keys is None else frame[list(keys)]
        made = pd.DataFrame(
            {name: series(table, at) for at, name in enumerate(table.names)}, index=frame.index, copy=False
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
