"""Random legal calls of the functions that the catalogue declares with TA-Lib as their reference."""

import itertools
import json
import re
import subprocess
from dataclasses import dataclass

import numpy
import talib
import talib.abstract

REFERENCE = "TA-Lib"
INTEGER = re.compile(r"a whole number from (\S+) to (\S+)")
REAL = re.compile(r"a number from (\S+) to (\S+)")
NUMBERED = re.compile(r"\((\d+)\)")

# Ranges in which users choose; anything else is drawn from the declared range, or from 0.01 to 5 where that is wide.
USUAL = {"startvalue": (-80.0, 80.0), "offsetonreverse": (0.0, 0.2), "vfactor": (0.0, 1.0), "penetration": (0.0, 1.0)}
USUAL |= {name: (0.001, 0.4) for name in ("acceleration", "maximum")}
USUAL |= {f"acceleration{kind}{side}": (0.001, 0.4) for kind in ("init", "", "max") for side in ("long", "short")}

# What is drawn for series without a name of their own.
REALS = ("close",) * 6 + ("open", "high", "low", "volume", "signed", "unit")
OF_UNIT = ("acos", "asin")


@dataclass
class Case:
    """A call of one function: arguments by position are columns, parameters are numbers."""

    function: str
    columns: list
    parameters: dict
    outputs: list

    def expressions(self):
        parameters = [f"{name}={value!r}" for name, value in self.parameters.items()]
        call = f"{self.function}({', '.join([*self.columns, *parameters])})"
        return [call] if len(self.outputs) == 1 else [f"{call}.{output}" for output in self.outputs]

    def reference(self, columns):
        """TA-Lib's outputs over these columns: float64 each, integers NaN in the look-back."""
        call = getattr(talib, self.function.upper())
        got = call(*(columns[name] for name in self.columns), **self.parameters)
        got = list(got) if isinstance(got, (tuple, list)) else [got]
        whole = [numpy.issubdtype(x.dtype, numpy.integer) for x in got]
        got = [numpy.asarray(x, dtype=float) for x in got]
        if any(whole):
            abstract = talib.abstract.Function(self.function.upper())
            abstract.parameters = self.parameters
            for x in itertools.compress(got, whole):
                x[: abstract.lookback] = numpy.nan
        return got


def catalogue(executable):
    """What the executable declares with TA-Lib as reference, in its order."""
    text = subprocess.run([executable, "indicators", "--json"], check=True, capture_output=True, text=True).stdout
    return [f for f in json.loads(text) if f["reference"].startswith(REFERENCE)]


def whole(random, least, most):
    """Mostly short, sometimes up to 200."""
    reach = random.choice([12, 40, 200], p=[0.6, 0.35, 0.05])
    return int(random.integers(least, min(most, least + reach) + 1))


def value(random, parameter):
    name, legal = parameter["name"], parameter["legal"]
    if bounds := INTEGER.match(legal):
        return whole(random, int(bounds[1]), int(bounds[2]))
    if bounds := REAL.match(legal):
        least, most = (float(b) for b in bounds.groups())
        if random.random() < 0.05 and least == 0.0:
            return 0.0
        if name == "startvalue" and random.random() < 0.5:
            return 0.0
        if name in USUAL or most - least <= 1000.0:
            least, most = USUAL.get(name, (least, most))
            return round(float(random.uniform(least, most)), 4)
        return round(float(10 ** random.uniform(-2, 0.7)), 4) * (-1 if least < 0.0 and random.random() < 0.2 else 1)
    if numbers := NUMBERED.findall(legal):
        return int(random.choice([int(n) for n in numbers]))
    raise ValueError(f"{name}: cannot draw {legal}")


def draw(random, function):
    """A random legal call."""
    columns = []
    for series in function["series"]:
        name = series["name"]
        if function["name"] in OF_UNIT:
            columns.append("unit")
        elif name.startswith("real"):
            columns.append(str(random.choice(REALS)))
        else:
            columns.append(name)
    # Now and then the defaults, all together.
    defaults = random.random() < 0.1
    parameters = {} if defaults else {p["name"]: value(random, p) for p in function["parameters"]}
    if "minperiod" in parameters:
        parameters["minperiod"], parameters["maxperiod"] = sorted((parameters["minperiod"], parameters["maxperiod"]))
    return Case(function["name"], columns, parameters, [o["name"] for o in function["outputs"]])
