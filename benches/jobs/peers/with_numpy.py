"""NumPy over arrays mapped from an Arrow file."""

import numpy
from arrays import Market
from common import SHARE, WEIGHTS, main, write_matches


def rank(folder, answer):
    market = Market(folder, ["close"])
    symbols = market.current()
    symbols = symbols[(market.ends - market.starts)[symbols] > max(WEIGHTS)]
    last = market.ends[symbols] - 1
    close = market.close
    score = sum(weight * 100 * (close[last] / close[last - n] - 1) for n, weight in WEIGHTS.items())
    _, place, counts = numpy.unique(score, return_inverse=True, return_counts=True)
    average = numpy.cumsum(counts) - (counts - 1) / 2
    share = (average[place] - 0.5) / len(score)
    write_matches(answer, [(market.symbols[symbols[i]], share[i]) for i in numpy.flatnonzero(share >= SHARE)])


if __name__ == "__main__":
    main({"rank": rank})
