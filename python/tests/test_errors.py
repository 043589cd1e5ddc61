"""Mistakes carry place, expectation and suggestion; no input ends the process."""

import pytest

import trawl as tw
from conftest import AS_OF


def mistake(function, *arguments, **named):
    with pytest.raises(tw.Mistake) as caught:
        function(*arguments, **named)
    return caught.value


def test_a_mistake_has_its_place_and_the_drawing_of_the_terminal(cli):
    found = mistake(tw.scan, "us5", where="close > smaa(close, 50)", as_of=AS_OF)
    assert isinstance(found, ValueError) and found.kind == "invalid"
    place = found.mistakes[0]
    assert (place.source, place.excerpt, place.start, place.end) == ("where", "smaa", 8, 12)
    assert found.help == "did you mean 'sma'?" == place.help
    import os
    import subprocess

    shown = subprocess.run(
        [os.environ["TRAWL_BIN"], "scan", "--dataset", "us5", "--where", "close > smaa(close, 50)", "--as-of", AS_OF],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
    ).stderr.decode()  # fmt: skip
    assert str(found) == shown.rstrip("\n")


def test_places_are_in_characters():
    found = mistake(tw.scan, "us5", where="'é世界' == smaa(close)", as_of=AS_OF)
    assert [place.excerpt for place in found.mistakes if "smaa" in place.message] == ["smaa"]


def test_each_mistake_of_a_scan_is_there():
    found = mistake(tw.scan, "us5", where="clsoe > 1", select=["opne"], as_of=AS_OF)
    assert {place.excerpt for place in found.mistakes} == {"clsoe", "opne"}


@pytest.mark.parametrize(
    ("function", "arguments", "named", "expected"),
    [
        (tw.scan, ("nowhere",), {"where": "true"}, "nowhere"),
        (tw.scan, ("us5",), {}, "no condition"),
        (tw.scan, (), {"where": "true"}, "which dataset"),
        (tw.scan, ("us5",), {"where": "true", "as_of": "yesterday-ish"}, "as_of"),
        (tw.scan, ("us5",), {"where": "true", "as_of": "1901-01-01"}, "no closed bar"),
        (tw.scan, ("us5",), {"where": "true", "limit": "many"}, "limit='many' is not a whole number"),
        (tw.scan, ("us5",), {"where": "true", "values": "some"}, "values"),
        (tw.scan, ("us5",), {"where": "true", "deadline_s": -1}, "deadline_s"),
        (tw.scan, ("us5",), {"where": "true", "keep": 2}, "keep needs best"),
        (tw.scan, ("us5",), {"where": "true", "file": "/nowhere.toml"}, "nowhere.toml"),
        (tw.study, ("us5",), {"where": "true", "by": "sectr"}, "sectr"),
        (tw.study, ("us5",), {"where": "true", "horizons": [0]}, "horizons"),
        (tw.panel, ("us5",), {"select": "close", "embargo": 3}, "embargo"),
        (tw.panel, ("us5",), {"select": "close", "start": "2099-01-01"}, ""),
        (tw.chart, ("us5", "IBMM"), {}, "IBM"),
        (tw.chart, ("us5", "IBM"), {"bars": 1}, "bars"),
        (tw.chart, ("us5", "IBM"), {"size": (1, 1)}, "pixels"),
        (tw.chart, ("us5", "IBM", "smaa(5)"), {}, "sma"),
        (tw.indicator, ("rsx",), {}, "rsi"),
        (tw.Dataset.open, ("nowhere",), {}, "nowhere"),
        (tw.Dataset.import_, ("/nowhere.csv",), {"name": "x"}, "nowhere.csv"),
        (tw.Dataset.import_, ((),), {"name": "x", "formt": "csv"}, "formt"),
    ],
)
def test_what_a_user_can_correct_is_a_mistake(function, arguments, named, expected):
    assert expected in str(mistake(function, *arguments, **named))


def test_a_name_that_ta_does_not_have_names_the_nearest():
    with pytest.raises(AttributeError, match="did you mean 'STOCHRSI'"):
        tw.ta.STOCHRSY
