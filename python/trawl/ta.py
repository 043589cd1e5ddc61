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
#: Ways of calling one function whose expressions are kept.
COMPILED_MAX = 256
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


def get_function_groups() -> dict[str, list[str]]:
    """Names of the functions by TA-Lib's groups.

    >>> import trawl as tw
    >>> tw.ta.get_function_groups()["Price Transform"]
    ['AVGDEV', 'AVGPRICE', 'HA', 'MEDPRICE', 'TYPPRICE', 'WCLPRICE']
    """
    groups: dict[str, list[str]] = {}
    for name, entry in sorted(_entries().items()):
        groups.setdefault(entry["group"].title(), []).append(name)
    return groups


class MA_Type:
    """TA-Lib's numbers of moving averages, as they are given as ``matype``.

    >>> import trawl as tw
    >>> tw.ta.MA_Type.EMA, tw.ta.MA_Type[8]
    (1, 'Triple Generalized Double Exponential Moving Average (T3)')
    """

    SMA, EMA, WMA, DEMA, TEMA, TRIMA, KAMA, MAMA, T3, HMA, DISABLED, DEFAULT, ZLEMA, RMA = range(14)
    _names = (
        "Simple Moving Average", "Exponential Moving Average", "Weighted Moving Average", "Double Exponential Moving Average",
        "Triple Exponential Moving Average", "Triangular Moving Average", "Kaufman Adaptive Moving Average",
        "MESA Adaptive Moving Average", "Triple Generalized Double Exponential Moving Average (T3)", "Hull Moving Average",
        "Disabled", "Default", "Zero-Lag Exponential Moving Average", "Wilder's Moving Average",
    )  # fmt: skip

    def __class_getitem__(cls, number: int) -> str:
        return cls._names[number]


def set_unstable_period(name: str, period: int) -> None:
    """TA-Lib's way of cutting off the first values of recursive functions; here values are never cut off, so that only 0 is taken."""
    if int(period) != 0:
        help = f"cut them off where they are used: trawl.ta.{name}(close)[{period}:]"
        raise Mistake(f"trawl.ta has no unstable period: set_unstable_period('{name}', {period})", help=help)


def get_unstable_period(name: str) -> int:
    """Always 0: see :func:`set_unstable_period`."""
    return 0


def set_compatibility(compatibility: int) -> None:
    """Only 0, TA-Lib's own definitions, is taken; 1, those of Metastock, begin averages differently."""
    if int(compatibility) != 0:
        help = "trawl.ta has TA-Lib's own definitions (0)"
        raise Mistake(f"trawl.ta has no compatibility with Metastock: set_compatibility({compatibility})", help=help)


def get_compatibility() -> int:
    """Always 0: see :func:`set_compatibility`."""
    return 0


#: Names of TA-Lib's that have no counterpart, and what does the same.
_INSTEAD = {
    "abstract": "trawl.ta has functions alone: getattr(trawl.ta, 'RSI')(close) calls one by its name, trawl.indicator('rsi') describes it, "
    "and trawl.compute(frame, ['rsi(14)']) reads the columns of a frame",
    "stream": "trawl.ta.RSI(close)[-1] is the value at the last bar, of the whole series; for a market, trawl.scan computes last bars alone",
    "InsufficientHistory": "trawl.ta returns NaN where a series is too short, and trawl.compute raises trawl.Mistake",
    "func": "the functions are in trawl.ta itself",
}


def __dir__() -> list[str]:
    own = ("MA_Type", "get_compatibility", "get_function_groups", "get_functions", "get_unstable_period")
    return [*get_functions(), *own, "set_compatibility", "set_unstable_period"]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    if name not in _made:
        entries = _entries()
        if name in _INSTEAD or name.startswith("stream_"):
            # No AttributeError: 'from trawl.ta import abstract' would make another error of it.
            raise Mistake(f"trawl.ta has no '{name}'", help=_INSTEAD["stream" if name.startswith("stream_") else name])
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
    count = len(series)
    #: Compiled expressions by the arguments that are no series, as they were given.
    compiled: dict[Any, _native.Expressions] = {}

    def function(*arguments: Any, **named: Any) -> Any:
        if len(arguments) < count:
            bound = signature.bind(*arguments, **named)
            arguments, named = tuple(bound.arguments.pop(item) for item in series), dict(bound.arguments)
        given = (arguments[count:], *named.items()) if named else arguments[count:]
        try:
            expressions = compiled.get(given)
        except TypeError:
            # Something that has no hash is no number either, as is said below.
            expressions = None
        if expressions is None:
            bound = signature.bind(*arguments, **named)
            bound.apply_defaults()
            values = {item["name"]: bound.arguments[item["name"]] for item in parameters}
            expressions = _compiled(entry, series, outputs, values)
            if len(compiled) < COMPILED_MAX:
                compiled[given] = expressions
        return _computed(name, series, arguments[:count], outputs, expressions)

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


def _compiled(entry: Indicator, series: list[str], outputs: list[str], parameters: dict[str, Any]) -> _native.Expressions:
    given = ", ".join([*series, *(f"{name}={_text(name, value)}" for name, value in parameters.items())])
    text = f"{entry['name']}({given})"
    texts = [text if len(outputs) == 1 else f"{text}.{output}" for output in outputs]
    headings = [f"{part} as o{at}" for at, part in enumerate(texts)]
    return call(_native.Expressions, series, headings, [], "f64")


def _computed(
    name: str, names: list[str], series: tuple[Any, ...], outputs: list[str], expressions: _native.Expressions
) -> Any:
    np = _frames.needed("numpy")
    arrays = [_numbers(np, item, values) for item, values in zip(names, series)]
    first = arrays[0].shape
    if len(first) != 1 or any(array.shape != first for array in arrays):
        shapes = ", ".join(f"{item} {array.shape}" for item, array in zip(names, arrays))
        raise Mistake(f"the series of {name} are not of one length: {shapes}")
    made = call(expressions.run_series, arrays)
    results = [_like(np, series[0], _whole(np, of, output)) for of, output in zip(made, outputs)]
    return results[0] if len(results) == 1 else tuple(results)


def _whole(np: Any, made: _native.Numbers, output: str) -> Any:
    values = np.asarray(made)
    return np.nan_to_num(values, copy=False, nan=0.0).astype("int32") if output in _WHOLE else values


def _numbers(np: Any, name: str, values: Any) -> Any:
    """A series as numbers in one piece, missing ones as NaN; the same memory where it is that."""
    if type(values) is np.ndarray and values.dtype == np.float64 and values.flags.carray:
        return values
    to_numpy = getattr(values, "to_numpy", None)
    if to_numpy is not None:
        values = to_numpy()
    if np.ma.isMaskedArray(values):
        values = values.astype("float64").filled(np.nan)
    array = np.asarray(values)
    try:
        if array.dtype.kind in "fiubO":
            return _frames.in_one_piece(np, array.astype("float64", copy=False))
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
