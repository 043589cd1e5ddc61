"""A progress bar for those who wait: in a terminal or a notebook, and only when the wait is noticeable."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

#: Shorter runs show nothing, in seconds.
PATIENCE_S = 0.5
#: Seconds between two drawings.
REDRAW_S = 0.1
#: Characters of the bar.
WIDTH = 40

#: What is called with how much is done, and of how much.
Tick = Callable[[int, int], None]


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    instance = shell.get_ipython() if shell is not None else None
    return instance is not None and type(instance).__name__ == "ZMQInteractiveShell"


class Bar:
    """Shows how far a run is. As a context manager it clears the line at the end.

    ``show``: ``True`` always, ``False`` never, ``None`` where a person looks: in a notebook, or when stderr is a terminal.
    """

    def __init__(self, show: bool | None, what: str = "groups of symbols") -> None:
        self._notebook = show is not False and _in_notebook()
        self.wanted = show if show is not None else self._notebook or sys.stderr.isatty()
        self._what = what
        self._begun = time.monotonic()
        self._drawn = 0.0
        self._shown = False

    @property
    def tick(self) -> Tick | None:
        """What the engine calls; ``None`` when nothing is shown."""
        return self._tick if self.wanted else None

    def _tick(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._begun < PATIENCE_S or now - self._drawn < REDRAW_S or total == 0:
            return
        self._drawn, self._shown = now, True
        filled = WIDTH * min(done, total) // total
        left = (now - self._begun) * (total - done) / done if done else 0.0
        text = f"{'█' * filled}{'░' * (WIDTH - filled)} {done} of {total} {self._what}, {left:.0f} s left"
        sys.stderr.write("\r" + text)
        sys.stderr.flush()

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\r" + " " * (WIDTH + 60) + "\r")
            sys.stderr.flush()
