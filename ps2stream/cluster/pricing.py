"""What a query would bring and cost, by the objects that were lately accepted."""

from __future__ import annotations

import numpy as np

from ps2stream.batch import F64, I64
from ps2stream.dispatcher.gridt import Gridt
from ps2stream.dispatcher.reservoir import ObjectSample
from ps2stream.planner.load import Costs
from ps2stream.rows import QueryRows
from ps2stream.service.gateway import Price
from ps2stream.tags import Tags
from ps2stream.workers.gi2 import GI2

MOST = 2048
"""Objects that all queries are weighed by: the dispatcher routes nothing meanwhile."""
_LEAST_MS = 1000


def priced(
    gridt: Gridt, costs: Costs, query: QueryRows, sample: ObjectSample, now_ms: int
) -> Price:
    """Of one query that is not there, by a sample of objects that is not empty. Nothing is
    changed."""
    tags = gridt.expand(query)
    row, owner = _pairs(gridt, tags, sample)
    near = np.unique(row)
    found = _matches(gridt, query, tags, sample, near)
    window_s = max(now_ms - max(sample.since, int(sample.accepted.min())), _LEAST_MS) / 1000
    weight = sample.weight / window_s
    checks = _sums(owner, weight[row], gridt.workers)
    copies = _copies(gridt, sample, near, row, owner, weight)
    return Price(
        matched=found,
        sampled=len(weight),
        objects_per_second=float(weight.sum()),
        matches_per_second=float(weight[found].sum()),
        window_s=window_s,
        cells=np.unique(tags.cell),
        postings=np.bincount(tags.worker, minlength=gridt.workers),
        checks=checks,
        copies=copies,
        load=costs.c1 * checks + costs.c2 * copies,
        load_now=_work(gridt, costs, sample, float(weight.sum())),
    )


def _pairs(gridt: Gridt, tags: Tags, sample: ObjectSample) -> tuple[I64, I64]:
    """Of each posting that an object would meet under a term of its own: the object's row, the
    posting's worker."""
    cells, terms = np.unique(tags.cell), np.unique(tags.term)
    level = int(cells[0] >> 28)
    cell = gridt.grid.cells(sample.lon, sample.lat, level)
    at = np.minimum(np.searchsorted(cells, cell), len(cells) - 1)
    inside = cells[at] == cell
    which = np.minimum(np.searchsorted(terms, sample.term), len(terms) - 1)
    row = np.repeat(np.arange(len(cell)), np.diff(sample.term_off))
    met = np.flatnonzero((terms[which] == sample.term) & inside[row])
    order = np.lexsort((tags.term, tags.cell))  # every cell with every term
    posting = order[at[row[met]] * len(terms) + which[met]]
    return row[met], tags.worker[posting].astype(np.int64)


def _matches(gridt: Gridt, query: QueryRows, tags: Tags, sample: ObjectSample, near: I64) -> I64:
    """Rows of the objects that match."""
    index, some = GI2(gridt.grid), sample.take(near)
    index.insert(query, tags.off, tags.cell, tags.term)
    found = index.match(int(query.handle[0]), some.lon, some.lat, some.term_off, some.term)
    return near[found.row]


def _copies(
    gridt: Gridt, sample: ObjectSample, near: I64, row: I64, owner: I64, weight: F64
) -> F64:
    """Of each worker the objects a second that it would be sent for this query alone."""
    some = sample.take(near)
    shares, _ = gridt.route(some.lon, some.lat, some.term_off, some.term)
    sent = [near[share.row] * gridt.workers + share.worker for share in shares]
    new = np.setdiff1d(row * gridt.workers + owner, np.concatenate([np.zeros(0, np.int64), *sent]))
    return _sums(new % gridt.workers, weight[new // gridt.workers], gridt.workers)


def _work(gridt: Gridt, costs: Costs, sample: ObjectSample, objects_per_second: float) -> F64:
    """Of each worker the work that the objects make now, microseconds a second."""
    if len(sample.lon) > MOST:
        sample = sample.take(np.arange(MOST) * len(sample.lon) // MOST)
    where = sample.lon, sample.lat, sample.term_off, sample.term
    shares, _ = gridt.route(*where)
    sent = np.zeros(gridt.workers)
    for share in shares:
        sent[share.worker] = len(share.row)
    work: F64 = costs.c2 * sent + costs.c1 * gridt.candidates(*where)
    return work * objects_per_second / len(sample.lon)


def _sums(worker: I64, weight: F64, workers: int) -> F64:
    """By worker; of nothing, zeros too."""
    return np.bincount(worker, weight, workers).astype(np.float64)
