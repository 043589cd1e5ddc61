"""Exceptions. What a user can correct is a :class:`Mistake`; everything else is another :class:`TrawlError`.

The engine in this package and a server describe an error in the same way, so that code that handles one handles both.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from . import _native

T = TypeVar("T")


class TrawlError(Exception):
    """Something went wrong. ``kind`` is the word that the HTTP interface has for it, ``help`` what to do, if that is known."""

    kind: str
    help: str | None

    def __init__(self, message: str, kind: str = "internal", help: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.help = help


@dataclass(frozen=True)
class Place:
    """One mistake, with its place in a text of the user's.

    ``text[start:end]`` is what ``message`` is about; ``source`` is the clause, argument or file that has the text.
    """

    message: str
    source: str
    text: str
    start: int
    end: int
    expected: str
    help: str | None

    @property
    def excerpt(self) -> str:
        """The characters that the mistake is about."""
        return self.text[self.start : self.end]


class Mistake(TrawlError, ValueError):
    """What the user can correct: an expression, a name, a file.

    ``str()`` is the drawing that the terminal shows, with the place in the text.

    >>> import trawl as tw
    >>> try:
    ...     tw.scan("us5", where="close > smaa(50)", as_of="2013-02-22")
    ... except tw.Mistake as mistake:
    ...     print(mistake.mistakes[0].excerpt, "->", mistake.help)
    smaa -> did you mean 'sma'?
    """

    #: Each place, in order; empty for a mistake that has none.
    mistakes: list[Place]
    #: The sentence without the drawing.
    message: str

    def __init__(
        self, message: str, *, help: str | None = None, mistakes: list[Place] | None = None, drawing: str | None = None
    ) -> None:
        shown = drawing or (f"{message}\nhelp: {help}" if help else message)
        super().__init__(shown, "invalid", help)
        self.message = message
        self.mistakes = mistakes or []


class Cancelled(TrawlError):
    """The scan was cancelled."""


class DeadlineExceeded(TrawlError, TimeoutError):
    """It was not done in time."""


class NotFound(TrawlError, LookupError):
    """There is no such scan, dataset or symbol on the server."""


class Denied(TrawlError, PermissionError):
    """The server does not know the caller, or the caller may not do this."""


class Unavailable(TrawlError, ConnectionError):
    """The server or the data do not answer; the same request may succeed later. ``retry_after_s`` is when, if that is known."""

    retry_after_s: float | None = None


class DataError(TrawlError):
    """Stored bars are damaged, or cannot be read."""


_KINDS: dict[str, type[TrawlError]] = {
    "cancelled": Cancelled,
    "conflict": TrawlError,
    "data": DataError,
    "deadline_exceeded": DeadlineExceeded,
    "denied": Denied,
    "not_found": NotFound,
    "too_many": Unavailable,
    "unauthenticated": Denied,
    "unavailable": Unavailable,
}


def of_body(body: dict[str, Any]) -> TrawlError:
    """The exception for an error as the engine or a server describes it."""
    kind = str(body.get("kind", "internal"))
    message = str(body.get("message", "unknown error"))
    help = body.get("help")
    if kind in ("invalid", "too_large") or body.get("mistakes"):
        places = [
            Place(
                str(m.get("message", "")),
                str(m.get("source", "")),
                str(m.get("text", "")),
                int(m.get("start", 0)),
                int(m.get("end", 0)),
                str(m.get("expected") or m.get("label") or ""),
                m.get("help"),
            )
            for m in body.get("mistakes") or []
        ]
        help = help or next((place.help for place in places if place.help), None)
        drawing = body.get("drawing") or "\n".join(draw(place) for place in places) or None
        return Mistake(message, help=help, mistakes=places, drawing=drawing)
    error = _KINDS.get(kind, TrawlError)(f"{message}; {help}" if help else message, kind, help)
    if isinstance(error, Unavailable):
        error.retry_after_s = body.get("retry_after_s")
    return error


def draw(place: Place) -> str:
    """A mistake as the terminal shows it, for servers, which send places and no drawings.

    >>> print(draw(Place("unknown function 'smaa'", "where", "close > smaa(50)", 8, 12, "no function of this name", None)))
    error: unknown function 'smaa'
     --> where:1:9
      |
    1 | close > smaa(50)
      |         ^^^^ no function of this name
      |
    """
    before = place.text[: place.start]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1)
    shown = place.text.split("\n")[line - 1] if place.text else ""
    marks = "^" * max(1, min(place.end, len(before) - column + len(shown)) - place.start)
    gutter = " " * len(str(line))
    lines = [
        f"error: {place.message}",
        f"{gutter}--> {place.source}:{line}:{column + 1}",
        f"{gutter} |",
        f"{line} | {shown}",
        f"{gutter} | {' ' * column}{marks} {place.expected}".rstrip(),
        f"{gutter} |",
    ]
    if place.help:
        lines.append(f"help: {place.help}")
    return "\n".join(lines)


#: Most threads that may be asked for.
THREADS_MAX = 1024


def checked_threads(threads: int | None) -> int | None:
    """A number of threads.

    Raises :class:`Mistake` for one that no run takes.
    """
    if threads is not None and not 0 < threads <= THREADS_MAX:
        raise Mistake(f"threads={threads} is not a number from 1 to {THREADS_MAX}", help="leave it out: one for each core")
    return threads


def call(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Calls the engine; its errors become the exceptions of this module."""
    try:
        return function(*arguments, **named)
    except _native.Failure as failure:
        error = of_body(json.loads(str(failure)))
    except BaseException as panic:
        # It is no Exception, so that nobody takes a fault of the engine for something else.
        if type(panic).__name__ != "PanicException":
            raise
        error = TrawlError("internal error: the engine panicked; please report it")
    raise error from None
