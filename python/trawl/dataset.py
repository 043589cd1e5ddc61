"""Datasets: from frames, from files, and those of a data root."""

from __future__ import annotations

import json
import os
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from . import _frames, _native
from ._engine import engine_of, root_of
from ._progress import Bar
from .errors import Mistake, call

PathLike = Union[str, "os.PathLike[str]"]

#: What a dataset from a frame is called where no name is given.
FRAME_NAME = "frame"
#: Meanings of columns that a map may name.
MEANINGS = ("time", "date", "symbol", "open", "high", "low", "close", "volume")


@dataclass(frozen=True)
class ImportReport:
    """What became of the rows of an import: ``rows_read = rows_kept + rows_quarantined``."""

    rows_read: int
    rows_kept: int
    rows_quarantined: int
    #: Rows that are no bars, by reason.
    quarantined: dict[str, int]
    #: Everything that ``trawl data import --json`` prints.
    details: dict[str, Any]


class Dataset:
    """A snapshot of bars that can be scanned.

    >>> import trawl as tw
    >>> bars = tw.Dataset.open("us5")
    >>> bars.symbols
    ['AAPL', 'FB', 'GOOG', 'IBM', 'MSFT']
    """

    def __init__(
        self, engine: _native.Engine, name: str, snapshot: str, report: ImportReport | None = None, root: str | None = None
    ) -> None:
        self._engine = engine
        #: Where it is, for another process.
        self._root = root
        self._name = name
        self._snapshot = snapshot
        self._report = report

    @classmethod
    def open(cls, name: str, *, root: PathLike | None = None) -> Dataset:
        """The newest snapshot of a dataset, or ``NAME@SNAPSHOT`` with at least 8 digits of its id.

        ``root`` is the data root: a directory or ``s3://BUCKET/PREFIX``; that of the command line if it is not given. ``us5`` and
        ``demo`` are in the package.
        """
        engine = engine_of(root)
        return cls(engine, *call(engine.open, name), root=root_of(root))

    @classmethod
    def from_polars(
        cls, frame: Any, *, name: str = FRAME_NAME, root: PathLike | None = None, progress: bool | None = None, **how: Any
    ) -> Dataset:
        """A dataset of the bars of a frame of polars: columns ``symbol``, ``time`` or ``date``, ``close``, and open, high, low,
        volume and others if there are any.

        Rows that cannot be bars are quarantined and counted (``report``), as in an import of files. Without ``root`` the dataset is
        in a temporary folder that vanishes with it. ``how`` has the options of :meth:`import_`; ``time``, ``symbol`` and the
        others name columns: ``from_polars(df, time="day", symbol="ticker")``.
        """
        if _frames.is_lazy(frame):
            frame = frame.collect()
        return cls._of_frame(frame, name, root, progress, how)

    @classmethod
    def from_pandas(
        cls, frame: Any, *, name: str = FRAME_NAME, root: PathLike | None = None, progress: bool | None = None, **how: Any
    ) -> Dataset:
        """The same of a frame of pandas; levels of its index that have names or times are columns too."""
        return cls._of_frame(frame, name, root, progress, how)

    @classmethod
    def from_arrow(
        cls, table: Any, *, name: str = FRAME_NAME, root: PathLike | None = None, progress: bool | None = None, **how: Any
    ) -> Dataset:
        """The same of a table of pyarrow, DuckDB or another library with the Arrow C stream interface."""
        return cls._of_frame(table, name, root, progress, how)

    @classmethod
    def import_(
        cls,
        files: PathLike | Sequence[PathLike] = (),
        *,
        name: str,
        root: PathLike | None = None,
        progress: bool | None = None,
        **how: Any,
    ) -> Dataset:
        """Imports files of bars, as ``trawl data import``; into an existing dataset it adds.

        ``how``: ``map`` (``{"close": "price"}``), ``columns``, ``format``, ``tz``, ``symbol_from``, ``decimal_comma``,
        ``month_first``, ``timeframe``, ``calendar``, ``complete_to``, ``factors``, ``symbols``, ``attributes``, ``strict``.
        """
        listed = [files] if isinstance(files, (str, os.PathLike)) else list(files)
        return cls._imported(engine_of(root), name, [os.fspath(file) for file in listed], None, progress, how, root=root_of(root))

    def append(self, bars: Any, *, progress: bool | None = None, **how: Any) -> Dataset:
        """A new snapshot with these bars too: a frame, a file, or several files. Bars that are there already with other values are
        replaced. This object still is the old snapshot.
        """
        if isinstance(bars, (str, os.PathLike)) or _are_files(bars):
            listed = [bars] if isinstance(bars, (str, os.PathLike)) else list(bars)
            return self._imported(self._engine, self._name, [os.fspath(f) for f in listed], None, progress, how, self)
        table, options = _table_of(bars, how)
        return self._imported(self._engine, self._name, [], table, progress, options, self)

    @classmethod
    def _of_frame(
        cls, frame: Any, name: str, root: PathLike | None, progress: bool | None, how: dict[str, Any]
    ) -> Dataset:
        table, options = _table_of(frame, how)
        if root is not None:
            return cls._imported(engine_of(root), name, [], table, progress, options, root=root_of(root))
        folder = tempfile.TemporaryDirectory(prefix="trawl-")
        engine = call(_native.Engine, folder.name, os.path.join(folder.name, "cache"), None)
        made = cls._imported(engine, name, [], table, progress, options, root=folder.name)
        made._folder = folder
        weakref.finalize(made, folder.cleanup)
        return made

    _folder: tempfile.TemporaryDirectory[str] | None = None

    @classmethod
    def _imported(
        cls,
        engine: _native.Engine,
        name: str,
        files: list[str],
        table: Any,
        progress: bool | None,
        how: Mapping[str, Any],
        before: Dataset | None = None,
        root: str | None = None,
    ) -> Dataset:
        options = {key: value for key, value in how.items() if value is not None}
        for key in ("factors", "symbols", "attributes"):
            if key in options:
                options[key] = os.fspath(options[key])
        mapped = options.get("map") or {}
        options["map"] = [list(pair) for pair in (mapped.items() if isinstance(mapped, Mapping) else mapped)]
        options["dataset"] = name
        with Bar(progress, "pieces") as bar:
            found = json.loads(call(engine.import_, json.dumps(options), files, table, bar.tick))
        report = ImportReport(
            found["rows_read"], found["rows_kept"], found["rows_quarantined"], found["quarantined"], found
        )
        made = cls(engine, found["dataset"], found["snapshot"], report, before._root if before is not None else root)
        if before is not None:
            # The folder of a temporary dataset lives as long as one of its snapshots.
            made._folder = before._folder
            made._kept = before
        return made

    _kept: Dataset | None = None
    #: Whether it is in a temporary folder of another process.
    _borrowed = False

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @property
    def snapshot(self) -> str:
        """The id of its snapshot."""
        return self._snapshot

    @property
    def identity(self) -> str:
        """``NAME@SNAPSHOT``: always the same bars."""
        return f"{self._name}@{self._snapshot}"

    @property
    def report(self) -> ImportReport | None:
        """What became of the rows; ``None`` for a dataset that was opened."""
        return self._report

    @property
    def symbols(self) -> list[str]:
        """Its symbols, in alphabetical order."""
        return call(self._engine.symbols, self.identity)

    def inspect(self, symbol: str | None = None, *, verify: bool = False, quality: bool = False) -> dict[str, Any]:
        """What it has, as ``trawl data inspect --json``."""
        return json.loads(call(self._engine.inspect, self.identity, symbol, verify, quality))

    def __reduce__(self) -> Any:
        """For another process that reads the same data root. One of a temporary folder is there as long as this object."""
        return (_opened_again, (self._root, self.identity, self._report, self._folder is not None))

    def __repr__(self) -> str:
        found = self.inspect()
        synthetic = ", SYNTHETIC data, no real market" if found.get("synthetic") else ""
        rest = f"{found['symbols']} symbols, {found['bars']} bars of {found['timeframe']}{synthetic}"
        return f"<Dataset {self._name}@{self._snapshot[:12]}: {rest}>"


def datasets(*, root: PathLike | None = None) -> list[dict[str, Any]]:
    """The datasets of a data root and those in the package, as ``trawl data list --json``."""
    return json.loads(call(engine_of(root).datasets))


def reference(dataset: Any) -> str | None:
    """The name by which a server is asked for a dataset: that of one in a data root, which the server may read too.

    Raises :class:`Mistake` for anything else.
    """
    if isinstance(dataset, Dataset) and (dataset._folder is not None or dataset._borrowed):
        help = "scan it here with trawl.scan, or import it into a data root that the server reads: root=... of from_polars"
        raise Mistake("this dataset is in a temporary folder of this machine, which a server does not read", help=help)
    return dataset.identity if isinstance(dataset, Dataset) else checked_name(dataset)


def checked_name(dataset: Any) -> str | None:
    """A dataset's name.

    Raises :class:`Mistake` for what is neither a name nor ``None``.
    """
    if dataset is None or isinstance(dataset, str):
        return dataset
    makers = {"polars": "from_polars", "pandas": "from_pandas"}
    maker = makers.get(type(dataset).__module__.split(".")[0])
    if maker is None and hasattr(dataset, "__arrow_c_stream__"):
        maker = "from_arrow"
    help = "a name, such as 'us5'; trawl.datasets() lists them" if maker is None else f"trawl.Dataset.{maker}(frame) makes one"
    raise Mistake(f"a dataset or its name is expected, not {type(dataset).__name__}", help=help)


def _opened_again(root: str | None, identity: str, report: ImportReport | None, is_temporary: bool) -> Dataset:
    """A dataset of another process."""
    opened = Dataset.open(identity, root=root)
    opened._report, opened._borrowed = report, is_temporary
    return opened


def _are_files(bars: Any) -> bool:
    if not isinstance(bars, (list, tuple)):
        return False
    return all(isinstance(file, (str, os.PathLike)) for file in bars)


def _table_of(frame: Any, how: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The frame as a table, and how its columns are read."""
    options = dict(how)
    mapped = dict(options.pop("map", None) or {})
    names = _frames.column_names(frame)
    levels = _frames.levels_of(frame)
    if _frames.kind_of(frame) == "pandas" and frame.index.nlevels > max(1, len(levels)) and None in frame.index.names:
        raise Mistake("a level of the frame's index has no name", help="frame.index.names = ['symbol', 'date'] names them")
    names = [*levels, *names]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Mistake(f"the frame has the column '{twice}' twice", help="give each column its own name")
    for meaning in MEANINGS:
        column = options.pop(meaning, None)
        if column is None:
            continue
        if column not in names:
            raise Mistake(f"the frame has no column '{column}'", help="its columns: " + ", ".join(names))
        # 'date' and 'time' name one column each in files; a frame has one of both.
        mapped["date" if meaning == "time" else meaning] = column
    options["map"] = mapped
    if _frames.kind_of(frame) == "pandas":
        return _frames.of_pandas(frame, names, levels), options
    return frame, options


__all__ = ["Dataset", "ImportReport", "datasets", "root_of"]
