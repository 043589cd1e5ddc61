"""A market as NumPy arrays, mapped from its Arrow file without a copy, for the peers that compute on arrays."""

import multiprocessing
import os

import numpy
import pyarrow
import pyarrow.ipc


class Market:
    """Columns of all symbols one after another: symbol i has the rows starts[i] to ends[i]."""

    def __init__(self, folder, columns):
        table = pyarrow.ipc.open_file(pyarrow.memory_map(f"{folder}/bars.arrow")).read_all()
        if table.column("symbol").num_chunks != 1:
            raise SystemExit("bars.arrow is to be one batch: of several, arrays would be copies")
        keys = table.column("symbol").chunk(0)
        codes = keys.indices.to_numpy()
        self.starts = numpy.concatenate([[0], numpy.flatnonzero(codes[1:] != codes[:-1]) + 1])
        self.ends = numpy.concatenate([self.starts[1:], [len(codes)]])
        names = keys.dictionary.to_pylist()
        self.symbols = [names[code] for code in codes[self.starts]]
        self.table = table
        for column in columns:
            setattr(self, column, self.array(column))

    def array(self, column):
        """A column, without a copy; times as microseconds since 1970."""
        values = self.table.column(column).chunk(0)
        if pyarrow.types.is_timestamp(values.type):
            values = values.view(pyarrow.int64())
        return values.to_numpy()

    def current(self):
        """Numbers of the symbols that have a bar at the market's last time."""
        last = self.array("time")[self.ends - 1]
        return numpy.flatnonzero(last == last.max())

    def rows(self, symbol, tail=None):
        """The rows of a symbol, or of its last bars, as a slice."""
        start, end = self.starts[symbol], self.ends[symbol]
        return slice(start if tail is None else max(start, end - tail), end)


def pooled(function, items, processes=None):
    """function(chunk of items) in so many processes (one for each core), in order. The market is inherited by fork, not sent."""
    processes = processes or len(os.sched_getaffinity(0))
    if processes == 1:
        return [function(items)]
    chunks = [chunk for chunk in numpy.array_split(items, processes) if len(chunk)]
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        return pool.map(function, chunks, chunksize=1)
