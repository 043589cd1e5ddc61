"""Charts that a notebook shows."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from typing import Any, Callable, Union

from . import _native
from ._document import as_times
from ._engine import engine_of
from ._scan import Time
from .answer import Answer
from .dataset import Dataset
from .errors import Mistake, call

Texts = Union[str, Sequence[str]]


#: Draws a chart as PNG, or as SVG; gives its bytes and warnings.
Draw = Callable[[bool], "tuple[bytes, list[str]]"]


class Chart:
    """A picture of one symbol; a notebook shows it. ``svg`` is its text."""

    def __init__(self, symbol: str, draw: Draw) -> None:
        self._symbol = symbol
        self._draw = draw
        drawn, self.warnings = draw(False)
        self.svg: str = drawn.decode()
        for text in self.warnings:
            warnings.warn(text, stacklevel=3)

    def png(self) -> bytes:
        """The same as PNG."""
        return self._draw(True)[0]

    def _repr_svg_(self) -> str:
        return self.svg

    def write(self, path: str | os.PathLike[str]) -> str:
        """Writes a file ending in .svg or .png."""
        name = os.fspath(path)
        if not name.lower().endswith((".png", ".svg")):
            raise Mistake(f"'{name}' does not say the format of the picture", help="a name that ends in .svg or .png")
        data = self.png() if name.lower().endswith(".png") else self.svg.encode()
        with open(name, "wb") as file:
            file.write(data)
        return name

    def __repr__(self) -> str:
        return f"<Chart of {self._symbol}: {len(self.svg)} bytes of SVG>"


def marked(marks: str | Answer) -> dict[str, Any]:
    """The scan whose matches are marked, as a document without a dataset: a condition, or the scan of an answer."""
    if isinstance(marks, str):
        return {"where": marks}
    # What decides which symbols match; columns and order are of no use here.
    return {key: value for key, value in (marks.document or {}).items() if key not in ("dataset", "select", "rank", "limit", "adjust")}


def dataset_of(name: str, marks: str | Answer | None) -> str:
    """The dataset of a chart: with the marks of an answer, the bars that the answer was computed from."""
    return marks.dataset if isinstance(marks, Answer) and name == marks.identity["dataset"] else name


def chart(
    dataset: Dataset | str,
    symbol: str,
    exprs: Texts = (),
    *,
    panel: Texts = (),
    overlay: Texts = (),
    marks: str | Answer | None = None,
    bars: int = 500,
    volume: bool = True,
    size: tuple[int, int] | None = None,
    as_of: Time = None,
    adjust: str | None = None,
) -> Chart:
    """Price and expressions of one symbol as a picture, as ``trawl chart``.

    A series that moves with the price is drawn over it, any other in a panel below; ``overlay`` and ``panel`` decide themselves.
    Expressions of one text that ``;`` separates share a panel. ``marks`` marks the bars at which a condition, or the scan of an answer,
    holds; with an answer, the name of its dataset means the snapshot that the answer was computed from.

    >>> import trawl as tw
    >>> picture = tw.chart("us5", "IBM", ["sma(close, 50)", "rsi(14)"], marks="rsi(14) < 30", bars=250)
    >>> picture.svg.startswith("<svg")
    True
    """
    engine = dataset._engine if isinstance(dataset, Dataset) else engine_of(None)
    name = dataset.identity if isinstance(dataset, Dataset) else dataset_of(dataset, marks)
    scan = None
    if marks is not None:
        keys = {**marked(marks), "dataset": name, **({"adjust": adjust} if adjust is not None else {})}
        scan = call(engine.prepare, json.dumps(keys), as_times(as_of))
    texts = [[item] if isinstance(item, str) else list(item) for item in (exprs, panel, overlay)]
    named = {"volume": volume, "bars": bars, "size": size, "as_of": as_times(as_of), "adjust": adjust, "marked": scan}
    return Chart(symbol, lambda png: call(_native.chart, engine, name, symbol, *texts, png=png, **named))
