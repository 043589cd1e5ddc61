"""The bar of progress: in a terminal, in a notebook, and nowhere else."""

import sys
import types

import pytest

from trawl import _progress
from trawl._progress import Bar


class Terminal:
    """A stderr."""

    def __init__(self, is_terminal):
        self.is_terminal, self.text = is_terminal, ""

    def isatty(self):
        return self.is_terminal

    def write(self, text):
        self.text += text

    def flush(self):
        pass


def shell(monkeypatch, name):
    """IPython with a shell of this class, or none."""
    instance = None if name is None else type(name, (), {})()
    module = types.SimpleNamespace(get_ipython=lambda: instance)
    monkeypatch.setitem(sys.modules, "IPython", module)


@pytest.mark.parametrize(
    ("name", "is_terminal", "wanted"),
    [
        ("ZMQInteractiveShell", False, True),  # a notebook, whose stderr is no terminal
        ("TerminalInteractiveShell", True, True),
        ("TerminalInteractiveShell", False, False),
        (None, False, False),
        (None, True, True),
    ],
)
def test_it_is_shown_where_a_person_looks(monkeypatch, name, is_terminal, wanted):
    shell(monkeypatch, name)
    monkeypatch.setattr(sys, "stderr", Terminal(is_terminal))
    assert Bar(None).wanted is wanted and (Bar(None).tick is not None) is wanted
    assert Bar(True).wanted and not Bar(False).wanted and Bar(False).tick is None


def test_a_notebook_without_ipython_is_none(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    monkeypatch.setattr(sys, "stderr", Terminal(False))
    assert not Bar(None).wanted


def test_a_notebook_sees_how_far_a_run_is_and_nothing_is_left(monkeypatch):
    shell(monkeypatch, "ZMQInteractiveShell")
    stderr = Terminal(False)
    monkeypatch.setattr(sys, "stderr", stderr)
    clock = [0.0]
    monkeypatch.setattr(_progress.time, "monotonic", lambda: clock[0])
    with Bar(None, "parts") as bar:
        for done, now in [(1, 0.1), (2, 1.0), (2, 1.01), (3, 2.0)]:
            clock[0] = now
            bar.tick(done, 4)
    drawn = [line for line in stderr.text.split("\r") if line.strip()]
    # Nothing while the wait is short, and not more often than an eye sees.
    assert [line.split("parts")[0].split()[-3:] for line in drawn] == [["2", "of", "4"], ["3", "of", "4"]]
    assert drawn[0].count("\u2588") == 20 and "1 s left" in drawn[0]
    assert stderr.text.endswith("\r") and not stderr.text.rstrip("\r").split("\r")[-1].strip(), "the line is cleared"


def test_a_short_run_shows_nothing(monkeypatch):
    stderr = Terminal(True)
    monkeypatch.setattr(sys, "stderr", stderr)
    with Bar(None) as bar:
        bar.tick(1, 2)
        bar.tick(0, 0)
    assert stderr.text == ""
