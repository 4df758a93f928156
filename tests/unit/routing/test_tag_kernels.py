"""Tags are expanded and divided as loops over dictionaries and lists do it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from ps2stream.protocol.frame import I64, U8
from ps2stream.routing import tag_kernels as kernels
from ps2stream.routing.h1 import H1, HashedLeaf
from ps2stream.routing.unit_kernels import FIRST_GROUP, U16
from ps2stream.space.grid import Grid
from tests.support.shards import shard_of

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
    place = np.zeros(len(off) - 1, np.uint64)
    tags = list(zip(cell.tolist(), term.tolist(), worker.tolist(), strict=True))
    want = divided(off.tolist(), tags, workers)
    split = kernels.SplitTags(*kernels.split_tags((off, cell, term, worker, place), workers))
    assert split.row_at.tolist() == np.cumsum([0, *map(len, want)]).tolist()
    sizes = [[len(some) for _, some in rows] for rows in want]
    assert split.tag_at.tolist() == np.cumsum([0, *map(sum, sizes)]).tolist()
    assert split.row.tolist() == [r for rows in want for r, _ in rows]
    assert split.off.tolist() == [at for some in sizes for at in np.cumsum([0, *some]).tolist()]
    flat = [(c, t) for rows in want for _, some in rows for c, t, _ in some]
    assert list(zip(split.cell.tolist(), split.term.tolist(), strict=True)) == flat


@pytest.mark.parametrize(
    ("off", "worker", "only"),
    [
        ([0], [], -1),
        ([0, 1], [7], 7),
        ([0, 1, 3], [7, 7, 7], 7),
        ([0, 1, 3], [7, 7, 6], -1),
        ([0, 1, 1], [7], -1),
    ],
)
def test_the_only_owner_of_tags_is_found(off: list[int], worker: list[int], only: int) -> None:
    """None if a row has no tag: its share would lack this row."""
    assert kernels.find_only_owner(np.array(off), np.array(worker, np.uint16)) == only


@pytest.mark.takes_turns(0)
@pytest.mark.parametrize("seed", range(8))
def test_the_tags_of_queries_are_those_of_the_steps(seed: int) -> None:
    """Both kernels do at once what the grid, the expansion and H1 do one after the other."""
    rng = np.random.default_rng(seed)
    grid, n = Grid(int(rng.integers(2, 9)), int(rng.integers(2, 9)), int(rng.integers(1, 9))), 40
    h1 = H1(3, np.zeros(grid.columns() * grid.rows(), np.uint32), [HashedLeaf((1,))])
    low = rng.uniform(-80, 60, (n, 2)) * [2.0, 1.0]
    box_off, box = 4 * np.arange(n + 1), np.hstack([low, low + rng.uniform(0, 20, (n, 2))]).ravel()
    term_off = ragged(rng, n, 5)
    term = rng.integers(0, 2**64, term_off[-1], np.uint64)
    post = rng.integers(0, 2**64, n, np.uint64)
    post &= np.array([(1 << int(size)) - 1 for size in np.diff(term_off)], np.uint64)
    cell_off, cell = grid.cover(box_off, box)
    tag_off = np.zeros(n + 1, np.int64)
    kernels.tag_sizes(cell_off, post, tag_off)
    want_cell, want_term = np.zeros(tag_off[-1], np.uint32), np.zeros(tag_off[-1], np.uint64)
    kernels.expand_tags(cell_off, cell, post, term_off, term, want_cell, want_term)
    sizes = grid.lines, grid.max_cells
    level, off = np.zeros(n, np.uint8), np.zeros((2, n + 1), np.int64)
    kernels.measure_tags((box_off, box), sizes, post, level, off)
    assert off.tolist() == [cell_off.tolist(), tag_off.tolist()]
    size = int(off[1, n])
    tags = np.zeros(size, np.uint32), np.zeros(size, np.uint64), np.zeros(size, np.uint16)
    kernels.list_tags((box_off, box), sizes, (post, term_off, term), level, off, h1.arrays, 3, tags)
    assert tags[0].tolist() == want_cell.tolist()
    assert tags[1].tolist() == want_term.tolist()
    assert tags[2].tolist() == h1.owners(want_cell, want_term).tolist()


@pytest.mark.parametrize("seed", range(10))
def test_each_holder_of_a_tag_is_listed_once(seed: int) -> None:
    """The workers of its group, or the one that has its shard, and those of its owner by the other
    plan."""
    rng = np.random.default_rng(seed)

    def some_groups() -> list[list[int]]:
        return [rng.permutation(6)[: int(rng.integers(2, 6))].tolist() for _ in range(3)]

    def columns(groups: list[list[int]]) -> tuple[I64, U16, U8]:
        off = np.cumsum([0, *map(len, groups)])
        flat = np.array([w for group in groups for w in group], np.uint16)
        return off, flat, np.array([1, 0, 0][: len(groups)], np.uint8)  # the first shards

    both = [some_groups(), some_groups() if seed % 2 else []]
    off = ragged(rng, 12, 5)
    n = int(off[-1])
    numbers = [[*range(6), *(FIRST_GROUP + g for g in range(len(groups)))] for groups in both]
    owner = rng.choice(numbers[0], n).astype(np.uint16)
    other = rng.choice(numbers[1], n if seed % 3 else 0).astype(np.uint16)

    cell, term = rng.integers(0, 9, n, np.uint32), rng.integers(0, 9, n, np.uint64)
    place = rng.integers(0, 9, len(off) - 1, np.uint64)
    of_tag = np.repeat(place, np.diff(off)).tolist()

    def members(k: int, holder: int, groups: list[list[int]]) -> list[int]:
        if holder == FIRST_GROUP:
            return [shard_of(groups[0], int(term[k]), of_tag[k])]
        return [holder] if holder < FIRST_GROUP else groups[holder - FIRST_GROUP]

    want = [members(k, w, both[0]) for k, w in enumerate(owner.tolist())]
    if len(other):
        later = [members(k, w, both[1]) for k, w in enumerate(other.tolist())]
        want = [list(dict.fromkeys(a + b)) for a, b in zip(want, later, strict=True)]
    tags = off, cell, term, owner, place
    found_off, found_cell, found_term, worker, _ = kernels.hold_tags(
        tags, columns(both[0]), other, columns(both[1])
    )
    assert worker.tolist() == [w for workers in want for w in workers]
    size = [len(workers) for workers in want]
    assert found_cell.tolist() == np.repeat(cell, size).tolist()
    assert found_term.tolist() == np.repeat(term, size).tolist()
    assert found_off.tolist() == np.r_[0, np.cumsum(size)][off].tolist()
