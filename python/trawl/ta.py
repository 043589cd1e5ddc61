"""TA-Lib's function names and defaults over arrays and series: ``import trawl.ta as talib`` and code goes on.

Every function of Trawl's catalogue that has TA-Lib's definition is here under TA-Lib's name, with its arguments in its order:
``RSI(close, timeperiod=14)``, ``MACD(close)`` (a tuple of three), ``STOCH(high, low, close, slowk_matype=0)``, ``CDLDOJI(open, high, low,
close)``. Series of NumPy, polars, pandas and lists are taken; a result is of the kind of the first one. As in TA-Lib, values before the
first are NaN, and outputs of whole numbers (patterns, indices) are of type int32, 0 before the first.

Missing values differ, on purpose: where TA-Lib's running sums stay NaN after one missing bar, values come back here as soon as the
bars that they need are known.

>>> import numpy as np, trawl as tw
>>> close = np.array([10.0, 11.0, 12.0, 11.0, 13.0])
>>> tw.ta.SMA(close, 2)
array([ nan, 10.5, 11.5, 11.5, 12. ])
>>> tw.ta.RSY
Traceback (most recent call last):
...
AttributeError: trawl.ta has no function 'RSY'; did you mean 'RSI'?
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from . import _frames, _native
from .errors import Mistake, call
from .indicators import Indicator, _all

#: What a catalogue's entry says of functions whose definition is TA-Lib's.
REFERENCE = "TA-Lib"
#: Outputs that are whole numbers.
_WHOLE = {"integer", "minidx", "maxidx", "swinghigh", "swinglow", "trend"}
#: Names of TA-Lib's numbers of moving averages.
_AVERAGES = (
    "sma", "ema", "wma", "dema", "tema", "trima", "kama", "mama", "t3", "hma", "disabled", "default", "zlema", "rma",
)  # fmt: skip
_made: dict[str, Callable[..., Any]] = {}


def _entries() -> dict[str, Indicator]:
    return {name.upper(): entry for name, entry in _all().items() if entry["reference"].startswith(REFERENCE)}


def get_functions() -> list[str]:
    """Names of the functions, in alphabetical order.

    >>> import trawl as tw
    >>> len(tw.ta.get_functions()) > 150
    True
    """
    return sorted(_entries())


def __dir__() -> list[str]:
    return [*get_functions(), "get_functions"]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    if name not in _made:
        entries = _entries()
        if name not in entries:
            near = difflib.get_close_matches(name.upper(), entries, 1, cutoff=0.5)
            help = f"did you mean '{near[0]}'?" if near else "trawl.ta.get_functions() lists them"
            raise AttributeError(f"trawl.ta has no function '{name}'; {help}")
        _made[name] = _function(name, entries[name])
    return _made[name]


def _function(name: str, entry: Indicator) -> Callable[..., Any]:
    series = [item["name"] for item in entry["series"]]
    parameters = entry["parameters"]
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature(
        [inspect.Parameter(item, kinds) for item in series]
        + [inspect.Parameter(item["name"], kinds, default=_default(item, parameters)) for item in parameters]
    )
    outputs = [output["name"] for output in entry["outputs"]]

    def function(*arguments: Any, **named: Any) -> Any:
        bound = signature.bind(*arguments, **named)
        bound.apply_defaults()
        return _computed(entry, [bound.arguments[item] for item in series], outputs, {
            item["name"]: bound.arguments[item["name"]] for item in parameters
        })  # fmt: skip

    function.__name__ = function.__qualname__ = name
    function.__doc__ = repr(entry)
    setattr(function, "__signature__", signature)
    return function


def _default(parameter: dict[str, Any], parameters: Sequence[dict[str, Any]]) -> Any:
    """The default as Python has it."""
    text = parameter.get("default")
    if text is None:
        return inspect.Parameter.empty
    if text.startswith("'"):
        return _AVERAGES.index(text.strip("'")) if text.strip("'") in _AVERAGES else text.strip("'")
    same = next((other for other in parameters if other["name"] == text), None)
    if same is not None:
        return _default(same, parameters)
    number = float(text)
    return int(number) if number.is_integer() and "whole" in parameter["legal"] else number


def _computed(entry: Indicator, series: list[Any], outputs: list[str], parameters: dict[str, Any]) -> Any:
    np = _frames.needed("numpy")
    names = [item["name"] for item in entry["series"]]
    arrays = [_numbers(np, name, values) for name, values in zip(names, series)]
    lengths = {array.shape for array in arrays}
    if len(lengths) != 1 or arrays[0].ndim != 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in zip(names, arrays))
        raise Mistake(f"the series of {entry['name'].upper()} are not of one length: {shapes}")
    given = ", ".join([*names, *(f"{name}={_text(name, value)}" for name, value in parameters.items())])
    text = f"{entry['name']}({given})"
    texts = [text if len(outputs) == 1 else f"{text}.{output}" for output in outputs]
    headings = [f"{part} as o{at}" for at, part in enumerate(texts)]
    table = _native.table_of_bytes([(name, "f8", array.tobytes()) for name, array in zip(names, arrays)])
    expressions = _compiled(tuple(names), tuple(headings))
    made = call(expressions.run, table, None, None, "XNYS", 1, False)
    results = [_like(np, series[0], _whole(np, made, at, output)) for at, output in enumerate(outputs)]
    return results[0] if len(results) == 1 else tuple(results)


@functools.lru_cache(maxsize=256)
def _compiled(names: tuple[str, ...], headings: tuple[str, ...]) -> _native.Expressions:
    return call(_native.Expressions, list(names), list(headings), [], "f64")


def _whole(np: Any, made: _native.Table, at: int, output: str) -> Any:
    values = np.asarray(made.array(at)[0])
    if output in _WHOLE:
        return np.nan_to_num(values, nan=0.0).astype("int32")
    return values.copy()


def _numbers(np: Any, name: str, values: Any) -> Any:
    """A series as numbers, missing ones as NaN."""
    to_numpy = getattr(values, "to_numpy", None)
    if to_numpy is not None:
        values = to_numpy()
    if np.ma.isMaskedArray(values):
        values = values.astype("float64").filled(np.nan)
    array = np.asarray(values)
    try:
        if array.dtype.kind in "fiubO":
            return np.ascontiguousarray(array, dtype="float64")
    except (TypeError, ValueError):
        pass
    raise Mistake(f"the series '{name}' is of type {array.dtype}", help="give numbers; missing ones are NaN or None")


def _text(name: str, value: Any) -> str:
    if "matype" in name and not isinstance(value, str):
        number = int(value)
        if not 0 <= number < len(_AVERAGES):
            raise Mistake(f"{name}={value} is no moving average", help=f"a number from 0 to {len(_AVERAGES) - 1}")
        value = _AVERAGES[number]
    if isinstance(value, str):
        return f"'{value}'"
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise Mistake(f"{name}={value!r} is no number") from None
    if not math.isfinite(number):
        raise Mistake(f"{name}={value!r} is no number")
    # TA-Lib takes whole numbers where they come as floats.
    return repr(int(value)) if number.is_integer() else repr(number)


def _like(np: Any, given: Any, values: Any) -> Any:
    module = type(given).__module__.split(".")[0]
    if module == "polars":
        return _frames.needed("polars").Series(values)
    if module == "pandas":
        return _frames.needed("pandas").Series(values, index=given.index)
    return values
