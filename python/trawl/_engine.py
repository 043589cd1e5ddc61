"""The engine of a data root, and the scans that run in it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from . import _native
from .errors import call


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

    def __init__(self, scan: _native.Scan, answer: _native.Answer) -> None:
        self._scan = scan
        self._answer = answer

    def table(self) -> _native.Table:
        return call(self._answer.table)

    def bytes(self, format: str) -> bytes:
        return call(self._answer.bytes, format)

    def about(self) -> dict[str, Any]:
        return json.loads(call(self._answer.about_json))

    def why(self, symbols: list[str]) -> list[dict[str, Any]]:
        return json.loads(call(self._scan.why, symbols))

    def write(self, path: str) -> list[str]:
        return [os.fspath(written) for written in call(self._answer.write, path)]
