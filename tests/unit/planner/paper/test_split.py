"""PartitionNode, literally, against sets and by its rules."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ps2stream.planner.paper.nodes import PaperModel, PaperNode
from ps2stream.planner.paper.split import (
    divisions,
    partition_node,
    restrict,
    space_splits,
    text_split,
    total,
)
from tests.support.paper_rows import PaperQuery, PaperSample, check_node, some_sample


def placed(model: PaperModel, *, alike: bool) -> PaperNode:
    """The root, in Ns or Nt."""
    root = model.root()
    return model.build(root.rect, root.place, root.objects, root.queries, None, alike)


@pytest.mark.parametrize("seed", range(3))
def test_space_is_halved_heaviest_first_by_the_cheaper_axis(seed: int) -> None:
    sample = some_sample(seed)
    model = sample.model()
    steps = list(itertools.islice(space_splits(model, model.root()), 6))
    assert [len(parts) for parts, _ in steps] == [1, 2, 3, 4, 5, 6]
    for (before, _), (after, lines) in itertools.pairwise(steps):
        (gone,) = {n.rect for n in before} - {n.rect for n in after}
        node = next(n for n in before if n.rect == gone)
        assert node.load == max(n.load for n in before)
        pairs = [
            model.cut(node, axis, at)
            for axis in (1, 0)
            if (at := model.median_line(node, axis)) is not None
        ]
        new = [n for n in after if n.rect not in {m.rect for m in before}]
        assert total(new) == pytest.approx(min(total([*pair]) for pair in pairs))
        assert gone in lines
        for part in new:
            check_node(sample, part)


@pytest.mark.parametrize("seed", range(3))
def test_terms_are_divided_over_all_cells(seed: int) -> None:
    sample = some_sample(seed)
    model = sample.model()
    root = model.root()
    posted = {t for q in sample.queries for t in q.posts}
    for k in (2, 3, 50):
        parts = text_split(model, root, k)
        terms = [{*n.terms.tolist()} for n in parts if n.terms is not None]
        assert len(parts) == len(terms) == min(k, len(posted))
        assert set().union(*terms) == posted
        assert sum(map(len, terms)) == len(posted)
        for part in parts:
            assert part.rect == root.rect
            check_node(sample, part)
    again = text_split(model, text_split(model, root, 2)[0], 2)
    for part in again:
        check_node(sample, part)


def test_one_term_cannot_be_divided() -> None:
    here, word = frozenset([0]), frozenset([3])
    model = PaperSample([(0, word)], [PaperQuery(here, word, word)]).model()
    root = model.root()
    assert text_split(model, root, 2) == [root]
    assert [len(parts) for parts, _ in divisions(model, root, 5)] == [1]
    assert partition_node(model, placed(model, alike=True), 2)[0][0].rect == root.rect


@pytest.mark.parametrize("seed", range(3))
def test_a_node_of_nt_is_divided_by_text_even_where_space_costs_less(seed: int) -> None:
    sample = some_sample(seed)
    model = sample.model()
    dearer = 0
    for k in (2, 3, 5):
        parts, lines = partition_node(model, placed(model, alike=False), k)
        assert len(parts) == k
        assert not lines
        assert all(n.terms is not None and not n.alike for n in parts)
        spaces, _ = list(itertools.islice(space_splits(model, model.root()), k))[-1]
        dearer += total(parts) > total(spaces)
    assert dearer


@pytest.mark.parametrize("seed", range(6))
def test_a_node_of_ns_is_divided_by_what_costs_less(seed: int) -> None:
    sample = some_sample(seed)
    model = sample.model()
    node = placed(model, alike=True)
    ways = list(itertools.islice(space_splits(model, node), 5))
    for k, (parts, lines) in enumerate(divisions(model, node, 5), 1):
        assert len(parts) == k
        assert all(n.alike for n in parts)
        if k > 1:
            both = total(ways[k - 1][0]), total(text_split(model, node, k))
            assert total(parts) == pytest.approx(min(both))
            assert bool(lines) == (both[0] <= both[1])


def test_text_is_cheaper_in_ns_where_queries_are_large() -> None:
    """All queries on both sides of every line, each of one of two words that never meet."""
    cells = frozenset(range(32))
    queries = [PaperQuery(cells, frozenset([i % 2]), frozenset([i % 2])) for i in range(10)]
    sample = PaperSample([(c, frozenset([c % 2])) for c in range(32)], queries)
    model = sample.model()
    parts, lines = partition_node(model, placed(model, alike=True), 2)
    assert not lines
    assert [len(n.queries) for n in parts] == [5, 5]
    assert [len(n.objects) for n in parts] == [16, 16]


def test_a_node_with_some_terms_alone() -> None:
    sample = some_sample(3)
    model = sample.model()
    check_node(sample, restrict(model, model.root(), np.array([1, 4], np.int32)))
