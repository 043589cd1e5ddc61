"""Trawl in Python: scans of a market's symbols, technical indicators, panels and studies. The engine is in this package.

>>> import trawl as tw
>>> answer = tw.scan("us5", where="close > sma(close, 200)", as_of="2013-02-22")
>>> answer.symbols
['GOOG', 'IBM']
"""

from . import ta
from ._chart import Chart, chart
from ._compute import compute
from ._native import __version__
from ._remote_async import AsyncRemote, connect_async
from ._scan import Explanation, Features, Study, explain, features, near, panel, scan, signals, study, sweep
from .answer import Answer, Why
from .dataset import Dataset, ImportReport, datasets
from .errors import (
    Cancelled,
    DataError,
    DeadlineExceeded,
    Denied,
    Mistake,
    NotFound,
    Place,
    TrawlError,
    Unavailable,
)
from .indicators import Indicator, indicator, indicators
from .remote import Remote, connect

open = Dataset.open
import_ = Dataset.import_

__all__ = [
    "Answer",
    "AsyncRemote",
    "Cancelled",
    "Chart",
    "DataError",
    "Dataset",
    "DeadlineExceeded",
    "Denied",
    "Explanation",
    "Features",
    "ImportReport",
    "Indicator",
    "Mistake",
    "NotFound",
    "Place",
    "Remote",
    "Study",
    "TrawlError",
    "Unavailable",
    "Why",
    "__version__",
    "chart",
    "compute",
    "connect",
    "connect_async",
    "datasets",
    "explain",
    "features",
    "import_",
    "indicator",
    "indicators",
    "near",
    "open",
    "panel",
    "scan",
    "signals",
    "study",
    "sweep",
    "ta",
]
