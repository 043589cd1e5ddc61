"""What the tests share. ``TRAWL_BIN`` is the command line that answers are compared with; without it those tests are skipped."""

import os
import subprocess

import pytest

import trawl as tw

AS_OF = "2013-02-22"
GOLDEN_CROSS = "close > sma(close, 200) and rsi(close, 14) > 50"


@pytest.fixture(scope="session", autouse=True)
def data_root(tmp_path_factory):
    """A data root of this run alone, for the package and for the command line."""
    root = tmp_path_factory.mktemp("data")
    os.environ["TRAWL_DATA_ROOT"] = str(root)
    os.environ.pop("TRAWL_COORDINATOR", None)
    return root


@pytest.fixture(scope="session")
def cli(data_root):
    """Runs the command line and returns its standard output as bytes."""
    program = os.environ.get("TRAWL_BIN")
    if not program:
        pytest.skip("TRAWL_BIN names no command line to compare with")

    def run(*arguments, check=True):
        done = subprocess.run([program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if check and done.returncode != 0:
            raise AssertionError(done.stderr.decode())
        return done.stdout

    return run


@pytest.fixture(scope="session")
def market(data_root):
    """A synthetic market of 300 symbols in the data root."""
    program = os.environ.get("TRAWL_BIN")
    if not program:
        pytest.skip("TRAWL_BIN makes the market")
    subprocess.run(
        [program, "data", "synth", "--symbols", "300", "--bars", "300", "--dataset", "market", "--seed", "7"], check=True
    )
    return tw.Dataset.open("market")
