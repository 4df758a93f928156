"""The input and the output of the baselines as a person would write them."""

from __future__ import annotations

import itertools

import numpy as np

from ps2stream.planner.partition import Partition
from ps2stream.planner.statistics import Statistics
from ps2stream.routing.plan import Space, Text


def rows_of(stats: Statistics) -> list[tuple[frozenset[int], float]]:
    """(terms, objects that it stands for) of each signature."""
    at = np.repeat(np.arange(stats.cells), np.diff(stats.row_off)).tolist()
    ends = itertools.pairwise(stats.row_start.tolist())
    return [
        (frozenset(stats.term[stats.row_unit[a:b]].tolist()), float(stats.weight[cell]))
        for (a, b), cell in zip(ends, at, strict=True)
    ]


def frequency_of(stats: Statistics) -> dict[int, float]:
    """The objects that each term routes, by its number."""
    f = dict.fromkeys(range(len(stats.terms)), 0.0)
    for unit, term in enumerate(stats.term.tolist()):
        f[term] += float(stats.o[unit])
    return f


def term_owner(partition: Partition, stats: Statistics) -> dict[int, int]:
    """The worker of each listed term of the one leaf, by its number."""
    (leaf,) = partition.leaves
    assert isinstance(leaf, Text)
    return {t: leaf.terms[w] for t, w in enumerate(stats.terms) if w in leaf.terms}


def assert_lightest_first(load: dict[int, float], owner: dict[int, int], workers: int) -> None:
    """By descending load each went to a worker with the least so far."""
    held = [0.0] * workers
    for item in sorted(load, key=lambda i: (-load[i], i)):
        if load[item] > 0:
            assert held[owner[item]] <= min(held) + 1e-9
            held[owner[item]] += load[item]


def cells_of_leaves(partition: Partition, stats: Statistics) -> dict[int, int]:
    """The leaf of each cell of the sample, by its number there."""
    assert all(isinstance(leaf, Space) for leaf in partition.leaves)
    return dict(enumerate(partition.cells[stats.cell].tolist()))
