"""What the documentation shows is what happens: doctests of the package, the examples of docs/python.md, the tutorial."""

import contextlib
import doctest
import importlib
import io
import json
import pathlib
import pkgutil

import pytest

import trawl as tw

OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def modules():
    names = [module.name for module in pkgutil.iter_modules(tw.__path__) if module.name != "_native"]
    return ["trawl", *(f"trawl.{name}" for name in names)]


@pytest.mark.parametrize("name", modules())
def test_doctests(name):
    pytest.importorskip("polars")
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=OPTIONS)
    assert failed == 0


def test_every_public_name_has_a_docstring():
    missing = [name for name in tw.__all__ if name != "__version__" and not getattr(tw, name).__doc__]
    assert missing == []


def tutorial():
    here = pathlib.Path(__file__).resolve().parent.parent
    return json.loads((here / "tutorial.ipynb").read_text())


def test_the_tutorial_runs():
    """Every cell of code, in order, in one namespace; the last expression of a cell is shown as a notebook shows it."""
    pytest.importorskip("polars")
    import ast

    space = {"__name__": "__main__"}
    cells = [cell for cell in tutorial()["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 10
    for number, cell in enumerate(cells):
        tree = ast.parse("".join(cell["source"]), f"cell {number}")
        last = tree.body[-1] if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        body = ast.Module(tree.body[:-1] if last else tree.body, [])
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(body, f"cell {number}", "exec"), space)
            if last is not None:
                shown = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), space)
                for form in ("_repr_html_", "_repr_svg_"):
                    if hasattr(shown, form):
                        assert getattr(shown, form)()
                assert repr(shown)


def test_the_tutorial_is_kept_without_outputs():
    for cell in tutorial()["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None
