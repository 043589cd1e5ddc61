"""The functions of the scan language."""

from __future__ import annotations

import difflib
import functools
import json
from typing import Any

from . import _native
from .errors import Mistake, call


class Indicator(dict[str, Any]):
    """A function: ``summary``, ``formula``, ``call``, ``series``, ``parameters``, ``outputs``, ``look_back`` and more."""

    def __repr__(self) -> str:
        lines = [self["summary"], "", f"  {self['call']}", "", f"formula  {self['formula']}", f"from     {self['reference']}"]
        lines += [f"number   {p['name']}: {p['legal']} [default: {p.get('default')}]" for p in self["parameters"]]
        lines += [f"output   {o['name']}: a {o['kind']}" for o in self["outputs"]]
        if self.get("look_back") is not None:
            lines.append(f"needs    {self['look_back']} bars before its first value, as in {self['example']}")
        return "\n".join(lines)


def by_name(entries: list[dict[str, Any]], search: str | None = None) -> dict[str, Indicator]:
    """Functions by their names; with ``search`` those that have all its words in their description."""
    words = (search or "").lower().split()
    found = (entry for entry in entries if all(word in json.dumps(entry).lower() for word in words))
    return {entry["name"]: Indicator(entry) for entry in found}


@functools.cache
def _all() -> dict[str, Indicator]:
    return by_name(json.loads(call(_native.indicators)))


def indicators(search: str | None = None) -> dict[str, Indicator]:
    """Every function by name; with ``search`` those that have all its words in their description.

    >>> import trawl as tw
    >>> "rsi" in tw.indicators()
    True
    """
    return by_name(list(_all().values()), search)


def indicator(name: str) -> Indicator:
    """One function.

    >>> import trawl as tw
    >>> tw.indicator("rsi")["parameters"][0]["default"]
    '14'
    """
    found = _all().get(name.lower())
    if found is None:
        aliases = {alias: entry for entry in _all().values() for alias in entry.get("aliases", [])}
        found = aliases.get(name.lower())
    if found is None:
        near = difflib.get_close_matches(name.lower(), _all(), 1)
        help = f"did you mean '{near[0]}'?" if near else "trawl.indicators() lists them"
        raise Mistake(f"there is no function '{name}'", help=help)
    return found
