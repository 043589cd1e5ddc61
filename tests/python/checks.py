"""What the independent computations of this folder share: the executable over data of their own, and the comparison of arrays."""

import argparse
import contextlib
import subprocess
import tempfile
from pathlib import Path

import numpy as np


@contextlib.contextmanager
def executable():
    """A function that runs --trawl with a data root of its own and returns its output, and the folder of that data root."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--trawl", required=True)
    trawl = arguments.parse_args().trawl
    with tempfile.TemporaryDirectory() as folder:

        def run(*arguments):
            command = [trawl, *arguments, "--data-root", folder]
            ran = subprocess.run(command, capture_output=True, text=True)
            if ran.returncode:
                raise SystemExit(f"{' '.join(command)}: {ran.stderr}")
            return ran.stdout

        yield run, Path(folder)


class Check:
    """Counts the values that were compared, and the checks that failed."""

    def __init__(self, relative=1e-9, absolute=1e-9):
        self.compared = self.wrong = 0
        self.relative, self.absolute = relative, absolute

    def same(self, what, got, want, tolerance=None):
        """Numbers within the tolerance, relative and absolute if it is given here; anything else equal."""
        got, want = np.asarray(got), np.asarray(want)
        self.compared += got.size
        if got.shape != want.shape:
            self.fail(f"{what}: shape {got.shape}, expected {want.shape}")
            return
        if got.dtype.kind == "f":
            relative, absolute = (self.relative, self.absolute) if tolerance is None else (tolerance, tolerance)
            same = np.isclose(got, want, rtol=relative, atol=absolute, equal_nan=True)
        else:
            same = got == want
        if not np.all(same):
            at = tuple(np.argwhere(~same)[0])
            self.fail(f"{what}: {int((~same).sum())} of {same.size} differ, at {at} {got[at]} for {want[at]}")

    def fail(self, what):
        self.wrong += 1
        print(what)
