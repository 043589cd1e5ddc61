"""The engine of a data root, and the scans that run in it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from . import _native
from ._document import pinned
from .errors import DataError, call


def user_folder(variable: str, in_home: str) -> str:
    """The folder ``trawl`` where a user's data or caches are, as the command line has it."""
    named = os.environ.get(variable, "")
    base = Path(named) if os.path.isabs(named) else Path.home() / in_home
    return str(base / "trawl")


def root_of(root: str | os.PathLike[str] | None) -> str:
    """The data root: as given, else ``TRAWL_DATA_ROOT``, else the user's."""
    if root is not None:
        return os.fspath(root)
    return os.environ.get("TRAWL_DATA_ROOT") or user_folder("XDG_DATA_HOME", ".local/share")


_OPEN: dict[str, _native.Engine] = {}


def engine_of(root: str | os.PathLike[str] | None = None) -> _native.Engine:
    """The engine of a data root; one for each."""
    place = root_of(root)
    if place not in _OPEN:
        cache = os.environ.get("TRAWL_DATA_CACHE") or user_folder("XDG_CACHE_HOME", ".cache")
        size = os.environ.get("TRAWL_DATA_CACHE_BYTES")
        _OPEN[place] = call(_native.Engine, place, cache, int(size) if size else None)
    return _OPEN[place]


class LocalSource:
    """An answer that the engine in this package computed."""

    def __init__(self, scan: _native.Scan, answer: Any, root: str | None, how: tuple[bool, bool]) -> None:
        self._scan = scan
        self._answer = answer
        self._root = root
        #: Whether symbols may fail, and whether columns have values for all symbols.
        self._how = how

    def table(self) -> _native.Table:
        return call(self._answer.table)

    def bytes(self, format: str) -> bytes:
        return call(self._answer.bytes, format)

    def about(self) -> dict[str, Any]:
        return json.loads(call(self._answer.about_json))

    def why(self, symbols: list[str]) -> list[dict[str, Any]]:
        return json.loads(call(self._scan.why, symbols))

    def near(self, most: int) -> list[dict[str, Any]]:
        return json.loads(call(self._scan.near, most))

    def write(self, path: str) -> list[str]:
        return [os.fspath(written) for written in call(self._answer.write, path)]

    def __reduce__(self) -> Any:
        return (SentSource, (self.about(), self.bytes("arrow"), self._root, self._how))


class SentSource:
    """The same in another process: its rows came along, and its scan is prepared again for whatever else is asked."""

    def __init__(self, about: dict[str, Any], rows: bytes, root: str | None, how: tuple[bool, bool]) -> None:
        self._about = about
        self._rows = rows
        self._root = root
        self._how = how
        self._again: LocalSource | None = None

    def _source(self, is_run: bool) -> LocalSource:
        """The source of the engine here."""
        if self._again is None or (is_run and self._again._answer is None):
            asked = pinned(self._about["scan"], self._about["identity"])
            document, shown = json.dumps(asked["document"]), json.dumps(self._about["scan"])
            scan = call(engine_of(self._root).prepare, document, (asked["as_of"], None), None, None, shown)
            answer = None
            if is_run:
                answer = call(scan.run, None, None, *self._how, None)
                if json.loads(call(answer.about_json))["digest"] != self._about["digest"]:
                    raise DataError("the scan of a pickled answer gives another one here: its bars could not all be read", "data")
            self._again = LocalSource(scan, answer, self._root, self._how)
        return self._again

    def table(self) -> _native.Table:
        return _native.table_of_ipc(self._rows)

    def bytes(self, format: str) -> bytes:
        return self._rows if format == "arrow" else self._source(True).bytes(format)

    def about(self) -> dict[str, Any]:
        return dict(self._about)

    def why(self, symbols: list[str]) -> list[dict[str, Any]]:
        return self._source(False).why(symbols)

    def near(self, most: int) -> list[dict[str, Any]]:
        return self._source(False).near(most)

    def write(self, path: str) -> list[str]:
        return self._source(True).write(path)

    def __reduce__(self) -> Any:
        return (SentSource, (self._about, self._rows, self._root, self._how))
