"""PartitionNode, literally: a node of Nt by text, one of Ns by text or space, whichever is less.

The paper says no more than that. How space and text are divided is that of algorithms.md 1.4:
space at medians, the heaviest part first; terms as in SALB, by descending product of objects and
queries.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ps2stream.planner.nodes import UNSEEN
from ps2stream.planner.paper.nodes import PaperModel, PaperNode, any_of
from ps2stream.planner.salb import WordOccurrences, divide, inverted
from ps2stream.planner.split import GridLine, Lines
from ps2stream.planner.statistics import I32
from ps2stream.protocol.frame import I64, take_ragged


def space_splits(model: PaperModel, node: PaperNode) -> Iterator[tuple[list[PaperNode], Lines]]:
    """Yields the divisions into 1, 2, 3 and more parts, with the lines drawn for each, as long as
    there are lines: the heaviest part at its median, by the axis with the smaller total load."""
    parts, whole, lines = [node], [True], Lines()
    yield list(parts), dict(lines)
    while any(whole):
        i = max((i for i in range(len(parts)) if whole[i]), key=lambda i: parts[i].load)
        found = None
        for axis in (1, 0):
            if (at := model.median_line(parts[i], axis)) is not None:
                pair = model.cut(parts[i], axis, at)
                if found is None or total([*pair]) < total([*found[1]]):
                    found = GridLine(axis, at), pair
        if found is None:
            whole[i] = False
            continue
        lines[parts[i].rect] = found[0]
        parts[i : i + 1], whole[i : i + 1] = found[1], (True, True)
        yield list(parts), dict(lines)


def text_split(model: PaperModel, node: PaperNode, k: int) -> list[PaperNode]:
    """Divides the node's posted terms over all its rectangle into k parts, or as many as there are
    terms."""
    rows, costs = model.rows, model.costs
    off, post = take_ragged(rows.post_off, rows.post, node.queries)
    row = node.queries[np.repeat(np.arange(len(off) - 1), np.diff(off))]
    mine = np.isin(post, node.terms) if node.terms is not None else np.ones(len(post), np.bool_)
    terms, word_of = np.unique(post[mine], return_inverse=True)
    n, k = len(terms), min(k, len(terms))
    if k < 2:
        return [node]
    word = np.full(int(max(terms[-1], rows.hit.max(initial=0))) + 1, -1, np.int32)
    word[terms] = np.arange(n)
    at, hit = inverted(rows.hit_off, rows.hit, node.objects, word, n)
    q, inserts, deletes = (
        np.bincount(word_of, column[row[mine]], n)
        for column in (rows.live, rows.inserts, rows.deletes)
    )
    weight = np.ones(len(node.objects))
    fixed = costs.c3 * inserts + costs.c4 * deletes + costs.c1 * UNSEEN * q
    words = WordOccurrences(at, hit, weight, q.astype(np.float64), fixed)
    order = np.lexsort((np.arange(n), -(q * (np.diff(at) + UNSEEN))))
    part = divide(words, order, k, costs.c1, costs.c2, 1.0)
    each = (terms[part == i].astype(np.int32) for i in range(k))
    return [restrict(model, node, own) for own in each if len(own)]


def restrict(model: PaperModel, node: PaperNode, terms: I32) -> PaperNode:
    """Returns the node with these of its terms alone."""
    rows = model.rows
    wanted = np.zeros(int(max(rows.post.max(initial=0), rows.hit.max(initial=0))) + 1, np.bool_)
    wanted[terms] = True

    def select(off: I64, held: I32, of: I64) -> I64:
        ends, values = take_ragged(off, held, of)
        return of[any_of(ends, wanted[values])]

    objects = select(rows.hit_off, rows.hit, node.objects)
    queries = select(rows.post_off, rows.post, node.queries)
    return model.build(node.rect, node.place, objects, queries, terms, node.alike, node.depth + 1)


def partition_node(model: PaperModel, node: PaperNode, k: int) -> tuple[list[PaperNode], Lines]:
    """Returns the parts of a node, k or as many as it can have, and the lines drawn for them."""
    *_, last = divisions(model, node, k)
    return last


def divisions(
    model: PaperModel, node: PaperNode, most: int
) -> Iterator[tuple[list[PaperNode], Lines]]:
    """Yields PartitionNode(node, k) for k from 1 to `most`, as long as it gives k parts."""
    by_space = space_splits(model, node) if node.alike else iter(())
    next(by_space, None)
    yield [node], {}
    for k in range(2, most + 1):
        by_text = text_split(model, node, k)
        parts, lines = next(by_space, ([], {}))
        if len(by_text) == k and not (parts and total(parts) <= total(by_text)):
            parts, lines = by_text, {}
        if not parts:
            break
        yield parts, lines


def total(nodes: list[PaperNode]) -> float:
    """Returns the sum of the loads."""
    return sum(node.load for node in nodes)
