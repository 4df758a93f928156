"""Estimates of the matches and costs of a query, by the objects that were lately accepted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps2stream.dispatcher.explanations import ExpandedQuery
from ps2stream.dispatcher.gateway import QueryEstimate
from ps2stream.dispatcher.ports import NewIndex, TrialIndex
from ps2stream.dispatcher.reservoir import ObjectSample
from ps2stream.language.analyzer import Analyzer
from ps2stream.language.literals import WatchedLiterals
from ps2stream.language.object_terms import NO_VALUES, ComparedValues, find_terms
from ps2stream.protocol.frame import F64, I64
from ps2stream.protocol.rows import QueryRows
from ps2stream.routing.costs import Costs
from ps2stream.routing.tags import QueryTags
from ps2stream.space.grid import Grid

_LEAST_WINDOW_MS = 1000


def estimate_query(
    expanded: ExpandedQuery,
    new_index: NewIndex,
    costs: Costs,
    sample: ObjectSample,
    now_ms: int,
    values: ComparedValues = NO_VALUES,
) -> QueryEstimate:
    """Estimates matches and costs of one query that is not stored, by a sample of objects that is
    not empty. values: of the objects, those that the query compares. The estimate is as if there
    were no other query, so that it reveals nothing about the queries of others."""
    query, tags, workers, grid = expanded.query, expanded.tags, expanded.workers, expanded.grid
    row, posting = _find_pairs(grid, tags, sample)
    found = _find_matches(new_index(grid), query, tags, sample, np.unique(row), values)
    window_s = max(now_ms - (sample.since or int(sample.accepted.min())), _LEAST_WINDOW_MS) / 1000
    weight = sample.weight / window_s
    holder, met = np.unique(expanded.holder, return_inverse=True)
    owners = [expanded.list_owners(number) for number in holder.tolist()]
    checks, copies = _divide_work(owners, met[posting], row, weight, workers)
    postings = np.zeros(workers, np.int64)
    for group, count in zip(owners, np.bincount(met).tolist(), strict=True):
        postings[[*group]] += count
    rate = float(weight.sum())
    return QueryEstimate(
        matched=found,
        sampled=len(weight),
        effective=rate * rate / float((weight * weight).sum()),
        objects_per_second=rate,
        matches_per_second=float(weight[found].sum()),
        window_s=window_s,
        cells=np.unique(tags.cell),
        tags=len(tags.cell),
        postings=postings,
        checks=checks,
        copies=copies,
        load=costs.c1 * checks + costs.c2 * copies,
    )


def search_sample(sample: ObjectSample, query: QueryRows, analyzer: Analyzer) -> ObjectSample:
    """Returns a sample that has been searched for the phrases, prefixes and predicates of a query,
    which no other query may have."""
    literals = WatchedLiterals.of(query).view()
    if not len(literals.term):
        return sample
    text, opaque = (sample.text_off, sample.text), (sample.opaque_off, sample.opaque)
    term_off, term = find_terms(analyzer, text, opaque, literals)
    return sample._replace(term_off=term_off, term=term)


def _find_pairs(grid: Grid, tags: QueryTags, sample: ObjectSample) -> tuple[I64, I64]:
    """Returns the pairs of an object and a posting that it would meet under one of its terms: the
    object's row, and the posting's number among the tags."""
    cells, terms = np.unique(tags.cell), np.unique(tags.term)
    level = int(cells[0] >> 28)
    cell = grid.cells(sample.lon, sample.lat, level)
    at = np.minimum(np.searchsorted(cells, cell), len(cells) - 1)
    inside = cells[at] == cell
    which = np.minimum(np.searchsorted(terms, sample.term), len(terms) - 1)
    row = np.repeat(np.arange(len(cell)), np.diff(sample.term_off))
    met = np.flatnonzero((terms[which] == sample.term) & inside[row])
    order = np.lexsort((tags.term, tags.cell))  # each cell is paired with each term
    return row[met], order[at[row[met]] * len(terms) + which[met]]


def _find_matches(
    index: TrialIndex,
    query: QueryRows,
    tags: QueryTags,
    sample: ObjectSample,
    near: I64,
    values: ComparedValues,
) -> I64:
    """Returns the rows of the objects in `near` that match."""
    some = sample.take(near)
    index.insert(query, tags.off, tags.cell, tags.term)
    value_off, value = values.take(near)
    found = index.match(
        int(query.handle[0]), some.lon, some.lat, some.term_off, some.term,
        value_off=value_off, value=value,
    )  # fmt: skip
    return near[np.sort(found.row)]  # an index finds them in no order


def _divide_work(
    owners: Sequence[tuple[int, ...]], met: I64, row: I64, weight: F64, workers: int
) -> tuple[F64, F64]:
    """Returns the checks and the copies of each worker per second, float64[workers] each.

    owners: the workers of each holder; met, row int64[pairs]: the holder and the object of each
    meeting; weight float64[objects]: objects per second that each stands for. Of a group, the
    workers to which an object goes anyhow get all that it brings, as the dispatcher prefers them;
    where there is none, each worker gets an equal part.
    """
    checks, copies = np.zeros(workers), np.zeros(workers)
    goes = np.zeros((len(weight), workers), np.bool_)
    rows = row[np.argsort(met, kind="stable")]
    end = np.cumsum(np.bincount(met, minlength=len(owners)))
    by_holder = np.split(rows, end[:-1])
    for holder in sorted(range(len(owners)), key=lambda number: len(owners[number])):
        group = np.array(owners[holder])
        objects, brought = np.unique(by_holder[holder], return_counts=True)
        there = goes[np.ix_(objects, group)]
        new = ~there.any(axis=1)
        part = np.where(new[:, None], 1.0, there)
        part /= part.sum(axis=1, keepdims=True)
        checks[group] += (weight[objects] * brought) @ part
        copies[group] += weight[objects[new]] @ part[new]
        if len(group) == 1:
            goes[objects, group[0]] = True
    return checks, copies
