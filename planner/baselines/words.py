"""The input of the text algorithms: signatures as publications of posted terms."""

from __future__ import annotations

import numpy as np

from ps2stream.planner.salb import WordOccurrences, inverted
from ps2stream.planner.statistics import Statistics
from ps2stream.protocol.frame import F64, I64


def frequencies(stats: Statistics) -> F64:
    """Returns the objects that each term routes, float64[t]: those of the cells where it is
    posted."""
    return np.bincount(stats.term, stats.o, len(stats.terms)).astype(np.float64)


def row_weights(stats: Statistics) -> F64:
    """Returns the objects that each signature stands for, float64[r]."""
    return np.repeat(stats.weight, np.diff(stats.row_off))


def publications(stats: Statistics) -> WordOccurrences:
    """Returns the words of the sample; a worker's load is the publications that it is sent."""
    rows: I64 = np.arange(len(stats.row_start) - 1)
    n = len(stats.terms)
    off, row = inverted(stats.row_start, stats.row_unit, rows, stats.term, n)
    return WordOccurrences(off, row, row_weights(stats), np.zeros(n), np.zeros(n))
