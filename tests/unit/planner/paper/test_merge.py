"""MergeNodesIntoPartitions, literally, step by step on sets (line 18)."""

from __future__ import annotations

import itertools

import pytest

from ps2stream.planner.paper.merge import merge_nodes
from ps2stream.planner.paper.split import space_splits, text_split
from ps2stream.routing.costs import balance
from tests.support.paper_rows import some_sample


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("m", [2, 4])
def test_each_node_goes_where_the_paper_says(seed: int, m: int) -> None:
    """The heaviest first; to where it adds least if the factor does not rise, else to the least
    loaded partition. Loads are those of the union."""
    sample = some_sample(seed)
    model = sample.model()
    spaces, _ = list(itertools.islice(space_splits(model, model.root()), 6))[-1]
    nodes = [*spaces[1:], *text_split(model, spaces[0], 3)]
    part, loads = merge_nodes(model, nodes, m)
    held: list[tuple[set[int], set[int]]] = [(set(), set()) for _ in range(m)]
    least_used = 0

    def load(i: int, o: set[int] = frozenset(), q: set[int] = frozenset()) -> float:  # type: ignore[assignment]
        return sample.load(held[i][0] | o, held[i][1] | q)

    order = sorted(range(len(nodes)), key=lambda i: (-nodes[i].load, i))
    for i in order:
        o, q = {*nodes[i].objects.tolist()}, {*nodes[i].queries.tolist()}
        now = [load(p) for p in range(m)]
        added = [load(p, o, q) - now[p] for p in range(m)]
        to = int(part[i])
        empty = [p for p in range(m) if not held[p][1]]
        if empty:
            assert to in empty
        else:
            best = min(added)
            least = next(
                p for p in sorted(range(m), key=lambda p: now[p]) if added[p] - best < 1e-9
            )
            grown = [n + added[p] * (p == least) for p, n in enumerate(now)]
            if max(grown) / min(grown) <= max(now) / min(now):
                assert added[to] == pytest.approx(best)
                least_used += 1
            else:
                assert now[to] == pytest.approx(min(now))
        held[to][0].update(o)
        held[to][1].update(q)
    assert loads.tolist() == pytest.approx([load(p) for p in range(m)])
    assert balance(loads) < 10


def test_each_partition_gets_a_node_first() -> None:
    sample = some_sample(1)
    model = sample.model()
    part, loads = merge_nodes(model, [model.root()] * 3, 2)  # the second adds nothing to the first
    assert part.tolist() == [0, 1, 0]
    assert loads.tolist() == [pytest.approx(model.root().load)] * 2


def test_fewer_nodes_than_partitions_leave_some_empty() -> None:
    sample = some_sample(1)
    model = sample.model()
    part, loads = merge_nodes(model, [model.root()], 3)
    assert part.tolist() == [0]
    assert loads.tolist() == [pytest.approx(model.root().load), 0.0, 0.0]
