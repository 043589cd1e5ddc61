"""The answer of a scan, computed here or by a server."""

from __future__ import annotations

import html
import json
import os
import tempfile
from collections.abc import Iterator
from typing import Any, Protocol, cast, overload

from . import _frames, _native
from ._document import whole
from .errors import Mistake

#: Rows that a notebook shows.
ROWS_SHOWN_MAX = 20
#: Columns of an answer that are not selected ones, as its files have them.
FIXED = ("time", "place", "symbol", "status", "edge", "provisional", "reason")


class Source(Protocol):
    """Where an answer comes from: the engine in this package, or a server."""

    def table(self) -> _native.Table:
        """Every row."""
        ...

    def bytes(self, format: str) -> bytes:
        """A file of it."""
        ...

    def about(self) -> dict[str, Any]:
        """What describes it."""
        ...

    def why(self, symbols: list[str]) -> list[dict[str, Any]]:
        """Why symbols are in it or not."""
        ...

    def near(self, most: int) -> list[dict[str, Any]]:
        """Which symbols almost are."""
        ...


class Why(dict[str, Any]):
    """Why a symbol is in an answer or not: the JSON of ``trawl scan --why --json``, and a drawing of it.

    ``why["parts"]`` has each part of the conditions with its ``text``, ``value``, ``depth`` and whether it ``decided``.
    """

    def __repr__(self) -> str:
        lines = [f"{self['symbol']}  {(self['status'] or 'not in the answer').replace('_', ' ')}"]
        if self.get("reason"):
            lines[0] += f": {self['reason']}"
        for part in self["parts"]:
            clause = f"{part['clause']}: " if part["clause"] else "  " * part["depth"]
            text = clause + " ".join(part["text"].split())
            value = part["value"]
            shown = "NA" if value is None else str(value).lower() if isinstance(value, bool) else f"{value:g}"
            lines.append(f"{text:<60} {shown:>12}" + ("  <-" if part["decided"] else ""))
        return "\n".join(lines)


class Answer:
    """The answer of a scan: one row for every symbol, with its status.

    >>> import trawl as tw
    >>> answer = tw.scan("us5", where="close > sma(close, 200)", as_of="2013-02-22")
    >>> answer.counts["matched"], len(answer)
    (2, 5)
    >>> answer.why(answer.symbols[0])["status"]
    'matched'
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._about = source.about()
        self._table: _native.Table | None = None
        self._df: Any = None

    @property
    def table(self) -> _native.Table:
        """Every row as a table with the Arrow C stream interface."""
        if self._table is None:
            self._table = self._source.table()
        return self._table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    @property
    def df(self) -> Any:
        """Every row as a frame of polars; of pandas or pyarrow where polars is not installed."""
        if self._df is None:
            self._df = _frames.default(self.table)
        return self._df

    def to_polars(self) -> Any:
        """Every row as a frame of polars."""
        return _frames.to_polars(self.table)

    def to_pandas(self) -> Any:
        """Every row as a frame of pandas."""
        return _frames.to_pandas(self.table)

    def to_arrow(self) -> Any:
        """Every row as a table of pyarrow."""
        return _frames.to_arrow(self.table)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every row as a dictionary; times are microseconds since 1970-01-01 UTC."""
        return _frames.rows(self.table)

    @property
    def matches(self) -> list[dict[str, Any]]:
        """The rows that match, in order of their places; those below a limit, which have none, are left out."""
        rows = [row for row in self.rows if row["place"] is not None]
        return sorted(rows, key=lambda row: row["place"])

    @property
    def symbols(self) -> list[str]:
        """The symbols that match, in order."""
        return [row["symbol"] for row in self.matches]

    @property
    def counts(self) -> dict[str, int]:
        """Rows by status, and the number of symbols."""
        return dict(self._about["counts"])

    @property
    def identity(self) -> dict[str, Any]:
        """What determines the answer: the dataset's snapshot, the plan, the as-of, precision, numerics."""
        return dict(self._about["identity"])

    @property
    def dataset(self) -> str:
        """``NAME@SNAPSHOT``: the bars that it was computed from, for other questions about them."""
        return f"{self._about['identity']['dataset']}@{self._about['identity']['snapshot']}"

    @property
    def digest(self) -> str:
        """Digest of the answer: equal for equal answers, on every machine."""
        return str(self._about["digest"])

    @property
    def as_of(self) -> str:
        """The bar that it is about."""
        return str(self._about["identity"]["as_of"])

    @property
    def warnings(self) -> list[str]:
        """What whoever reads it should know."""
        return list(self._about.get("warnings") or [])

    @property
    def document(self) -> dict[str, Any] | None:
        """What was scanned."""
        return self._about.get("scan")

    @property
    def report(self) -> dict[str, Any]:
        """How the run went: times, places, attempts. Not part of the answer."""
        return dict(self._about.get("report") or {})

    @overload
    def why(self, symbol: str) -> Why: ...

    @overload
    def why(self, symbol: list[str]) -> list[Why]: ...

    def why(self, symbol: str | list[str]) -> Why | list[Why]:
        """Each part of the conditions with its value for this symbol, and which part decided; of a list of symbols a list.

        It is about the bars that the answer was computed from, also when the dataset has newer ones.
        """
        symbols = list(symbol) if isinstance(symbol, (list, tuple)) else [symbol]
        wrong = [name for name in symbols if not isinstance(name, str)]
        if wrong:
            raise Mistake(f"a symbol is expected, not {type(wrong[0]).__name__}", help="its name, such as answer.why('IBM'), or a list of names")
        found = [Why(of) for of in self._source.why(symbols)] if symbols else []
        return found if isinstance(symbol, (list, tuple)) else found[0]

    def near(self, most: int = 1) -> list[dict[str, Any]]:
        """Symbols that are not in it because of at most ``most`` terms joined by 'and', as :func:`trawl.near`; of the same bars."""
        return self._source.near(cast(int, whole("most", most)))

    def to_bytes(self, format: str = "csv") -> bytes:
        """The bytes that ``trawl scan --output`` writes: ``csv``, ``json``, ``ndjson``, ``parquet`` or ``arrow``."""
        return self._source.bytes(format)

    def write(self, path: str | os.PathLike[str]) -> list[str]:
        """Writes a file in the format of its extension, as ``trawl scan --output`` does; the paths of what was written.

        Beside CSV and JSON lines, which have no room for it, the identity is written to FILE.identity.json.
        """
        write = getattr(self._source, "write", None)
        if write is not None:
            return write(os.fspath(path))
        name = os.fspath(path)
        formats = {"csv": "csv", "json": "json", "jsonl": "ndjson", "ndjson": "ndjson", "parquet": "parquet", "arrow": "arrow"}
        format = formats.get(name.rsplit(".", 1)[-1].lower())
        if format is None:
            raise Mistake(f"'{name}' does not say the format of the answer", help="a name that ends in " + ", ".join(f".{f}" for f in formats))
        written = [name]
        _replace(name, self.to_bytes(format))
        if format in ("csv", "ndjson"):
            written.append(f"{name}.identity.json")
            kept = ("identity", "answer_digest", "scan", "counts", "text_columns")
            text = json.dumps({key: self._about[key] for key in kept if key in self._about}, indent=2, ensure_ascii=False)
            _replace(written[1], f"{text}\n".encode())
        return written

    def __getstate__(self) -> dict[str, Any]:
        """For another process: frames are made there."""
        return {"_source": self._source}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_source"])

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.matches)

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Answer) and self.digest == other.digest and self.identity == other.identity

    __hash__ = None  # type: ignore[assignment]

    def _line(self) -> str:
        counts, identity = self.counts, self._about["identity"]
        shown = ", ".join(
            f"{counts[status]} {status.replace('_', ' ')}"
            for status in ("matched", "not_matched", "unknown", "outside", "stale", "failed")
            if counts.get(status)
        )
        synthetic = " (SYNTHETIC data, no real market)" if self._about.get("synthetic") else ""
        snapshot = str(identity["snapshot"])[:12]
        return f"{identity['dataset']}@{snapshot} as of {identity['as_of']}{synthetic}: {shown}"

    def __repr__(self) -> str:
        names, rows = self._shown()
        cells = [names, *([_cell(row[name]) for name in names] for row in rows)]
        widths = [max(len(line[at]) for line in cells) for at in range(len(names))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]
        more = self.counts["matched"] - len(rows)
        if more > 0:
            lines.append(f"... and {more} more")
        return "\n".join([self._line(), *(lines if rows else [])])

    def _repr_html_(self) -> str:
        names, rows = self._shown()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_cell(row[name]))}</td>" for name in names) + "</tr>" for row in rows
        )
        more = self.counts["matched"] - len(rows)
        rest = f"<p>... and {more} more</p>" if more > 0 else ""
        warnings = "".join(f"<p>warning: {html.escape(text)}</p>" for text in self.warnings)
        return (
            f"<div><p>{html.escape(self._line())}</p>{warnings}"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}</div>"
        )

    def _shown(self) -> tuple[list[str], list[dict[str, Any]]]:
        hidden = {"time", "status", "edge", "provisional", "reason"}
        names = [name for name in self.table.names if name not in hidden]
        return names, self.matches[:ROWS_SHOWN_MAX]


def _replace(name: str, data: bytes) -> None:
    """Writes a file, which is replaced as a whole: what was there stays if this fails."""
    folder, base = os.path.split(os.path.abspath(name))
    handle, staged = tempfile.mkstemp(prefix=f".{base}.", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(staged, 0o666 & ~mask)
        os.replace(staged, name)
    except BaseException:
        os.unlink(staged)
        raise


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)
