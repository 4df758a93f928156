"""Nodes of the literal kdt-tree against sets of objects and queries."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.planner.paper.nodes import any_of
from tests.support.paper_rows import (
    COLUMNS,
    ROWS,
    PaperQuery,
    PaperSample,
    cells_in,
    check_node,
    some_sample,
)


@pytest.mark.parametrize("seed", range(4))
def test_a_line_gives_each_side_what_lies_in_it(seed: int) -> None:
    """A query on the line is in both, and once in each, whatever the number of its cells."""
    sample = some_sample(seed)
    model = sample.model()
    root = model.root()
    check_node(sample, root)
    assert len(root.queries) == len(sample.queries)
    both = 0
    for axis, at in ((0, 1), (0, 3), (1, 2), (1, 7)):
        low, high = model.cut(root, axis, at)
        assert (low.rect[1] if axis == 0 else low.rect[3]) == at
        for side in (low, high, *model.cut(low, 1 - axis, 1)):
            check_node(sample, side)
        both += len({*low.queries.tolist()} & {*high.queries.tolist()})
    assert both


@pytest.mark.parametrize("seed", range(4))
def test_similarity_is_over_all_terms_of_texts_and_live_queries(seed: int) -> None:
    sample = some_sample(seed)
    model = sample.model()
    for node in (model.root(), *model.cut(model.root(), 1, 3), *model.cut(model.root(), 0, 1)):
        found = model.similarity(node)
        assert found == pytest.approx(sample.similarity(cells_in(node.rect)))
        assert 0 < found < 1


def test_words_of_which_no_query_is_posted_make_a_difference() -> None:
    """Unlike in planner/similarity.py: with posted terms alone it would be one."""
    here, texts = frozenset([0]), frozenset([0, 1])
    query = PaperQuery(here, frozenset([0, 2]), frozenset([0]))
    model = PaperSample([(0, texts)] * 5, [query]).model()
    assert model.similarity(model.root()) == pytest.approx(0.5)
    apart = PaperSample([(0, frozenset([1]))], [query]).model()
    assert apart.similarity(apart.root()) == 0.0
    nothing = PaperSample([(0, texts)], []).model()
    assert nothing.similarity(nothing.root()) == 0.0


@pytest.mark.parametrize("seed", range(4))
def test_the_median_line_halves_the_objects(seed: int) -> None:
    sample = some_sample(seed)
    model = sample.model()
    for axis, size in ((0, ROWS), (1, COLUMNS)):
        at = model.median_line(model.root(), axis)
        strips = [cell // COLUMNS if axis == 0 else cell % COLUMNS for cell, _ in sample.objects]
        off = [abs(sum(s < k for s in strips) - len(strips) / 2) for k in range(1, size)]
        assert at is not None
        assert off[at - 1] == min(off)


def test_no_line_divides_one_strip() -> None:
    word = frozenset([0])
    model = PaperSample([(3, word)], [PaperQuery(frozenset([3]), word, word)]).model()
    assert [model.median_line(model.root(), axis) for axis in (0, 1)] == [None, None]
    wide = PaperSample([], [PaperQuery(frozenset([3, 4]), word, word)]).model()
    assert [wide.median_line(wide.root(), axis) for axis in (0, 1)] == [None, 4]


def test_any_flag_of_a_row_counts() -> None:
    flags = np.array([False, True, True, False, False])
    assert any_of(np.array([0, 2, 2, 3, 5]), flags).tolist() == [True, False, True, False]
