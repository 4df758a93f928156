"""Tags are expanded and divided as loops over dictionaries and lists do it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from ps2stream.protocol.frame import I64
from ps2stream.routing import tag_kernels as kernels

Tag = tuple[int, int, int]
"""The cell, term and worker of a tag."""


def ragged(rng: np.random.Generator, rows: int, most: int) -> I64:
    off: I64 = np.r_[0, np.cumsum(rng.integers(0, most + 1, rows))]
    return off


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_expanded_as_by_the_twin(seed: int) -> None:
    """Rows without cells, without posting terms, and with all of 64."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(0, 30))
    cell_off, term_off = ragged(rng, rows, 4), ragged(rng, rows, int(rng.choice([3, 64])))
    cell = rng.integers(0, 2**32, cell_off[-1], np.uint32)
    term = rng.integers(0, 2**64, term_off[-1], np.uint64)
    size = np.diff(term_off)
    post = rng.integers(0, 2**64, rows, np.uint64)
    post |= np.where(rng.random(rows) < 0.3, np.uint64(2**64 - 1), np.uint64(0))
    full = np.array([(1 << int(n)) - 1 for n in size], np.uint64)
    post &= full
    want = [
        [(int(c), int(t)) for c in cell[a:b] for i, t in enumerate(term[d:e]) if int(bits) >> i & 1]
        for (a, b), (d, e), bits in zip(pairwise(cell_off), pairwise(term_off), post, strict=True)
    ]
    off = np.zeros(rows + 1, np.int64)
    kernels.tag_sizes(cell_off, post, off)
    assert off.tolist() == np.cumsum([0, *map(len, want)]).tolist()
    tag_cell, tag_term = np.zeros(off[-1], np.uint32), np.zeros(off[-1], np.uint64)
    kernels.expand_tags(cell_off, cell, post, term_off, term, tag_cell, tag_term)
    found = list(zip(tag_cell.tolist(), tag_term.tolist(), strict=True))
    assert found == [tag for row in want for tag in row]


def divided(off: list[int], tags: list[Tag], workers: int) -> list[list[tuple[int, list[Tag]]]]:
    """For each worker its rows, each with its tags, in order."""
    out: list[list[tuple[int, list[Tag]]]] = []
    for worker in range(workers):
        own = [
            (row, [tag for tag in tags[a:b] if tag[2] == worker])
            for row, (a, b) in enumerate(pairwise(off))
        ]
        out.append([(row, some) for row, some in own if some])
    return out


@pytest.mark.parametrize("seed", range(8))
def test_tags_are_divided_as_by_the_twin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    workers = int(rng.choice([1, 3, 70]))
    off = ragged(rng, int(rng.integers(0, 40)), 6)
    cell = rng.integers(0, 2**32, off[-1], np.uint32)
    term = rng.integers(0, 2**64, off[-1], np.uint64)
    worker = rng.integers(0, workers, off[-1]).astype(np.uint16)
    tags = list(zip(cell.tolist(), term.tolist(), worker.tolist(), strict=True))
    want = divided(off.tolist(), tags, workers)
    row_n, tag_n = np.zeros(workers, np.int64), np.zeros(workers, np.int64)
    kernels.group_tags(off, worker, workers, row_n, tag_n)
    assert row_n.tolist() == [len(rows) for rows in want]
    assert tag_n.tolist() == [sum(len(some) for _, some in rows) for rows in want]
    row_at, tag_at = np.cumsum(np.r_[0, row_n[:-1]]), np.cumsum(np.r_[0, tag_n[:-1]])
    rows, tags_ = int(row_n.sum()), int(tag_n.sum())
    row, size = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    out_cell, out_term = np.zeros(tags_, np.uint32), np.zeros(tags_, np.uint64)
    kernels.split_tags((off, cell, term, worker), row_at, tag_at, (row, size, out_cell, out_term))
    assert row.tolist() == [r for rows_ in want for r, _ in rows_]
    assert size.tolist() == [len(some) for rows_ in want for _, some in rows_]
    flat = [(c, t) for rows_ in want for _, some in rows_ for c, t, _ in some]
    assert list(zip(out_cell.tolist(), out_term.tolist(), strict=True)) == flat
    assert row_at.tolist() == np.cumsum(row_n).tolist()
    assert tag_at.tolist() == np.cumsum(tag_n).tolist()
