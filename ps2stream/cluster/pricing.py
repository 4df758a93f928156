"""What a query would bring and cost, by the objects that were lately accepted."""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np

from ps2stream.batch import F64, I64
from ps2stream.dispatcher.gridt import Gridt, Share
from ps2stream.dispatcher.reservoir import ObjectSample
from ps2stream.planner.load import Costs
from ps2stream.rows import QueryRows
from ps2stream.service.gateway import Price
from ps2stream.tags import Tags
from ps2stream.workers.gi2 import GI2

MOST = 2048
"""Objects that are routed, once for all queries and once for this one: the dispatcher routes
nothing else meanwhile."""
_LEAST_MS = 1000


def priced(
    gridt: Gridt,
    lock: AbstractContextManager[object],
    costs: Costs,
    query: QueryRows,
    sample: ObjectSample,
    now_ms: int,
) -> Price:
    """Of one query that is not there, by a sample of objects that is not empty. Nothing is
    changed; `lock`, the gridt's, is held only while it is asked."""
    tags = gridt.expand(query)
    row, posting = _pairs(gridt, tags, sample)
    near = np.unique(row)
    found = _matches(gridt, query, tags, sample, near)
    window_s = max(now_ms - (sample.since or int(sample.accepted.min())), _LEAST_MS) / 1000
    weight = sample.weight / window_s
    few, many = _thinned(near), _fairly(weight)
    some, all_ = sample.take(few), sample.take(many)
    where = all_.lon, all_.lat, all_.term_off, all_.term
    with lock:
        workers = gridt.workers
        owner = gridt.expand(query).worker.astype(np.int64)
        sent, _ = gridt.route(some.lon, some.lat, some.term_off, some.term)
        sent_now, _ = gridt.route(*where)
        met_now = gridt.candidates(*where)
    checks = _sums(owner[posting], weight[row], workers)
    stands_for = weight.copy()
    stands_for[few] *= weight[near].sum() / max(weight[few].sum(), 1e-300)
    copies = _copies(few, row, owner[posting], sent, stands_for, workers)
    seen_now = np.zeros(workers)
    for share in sent_now:
        seen_now[share.worker] = len(share.row)
    rate = float(weight.sum())
    return Price(
        matched=found,
        sampled=len(weight),
        effective=rate * rate / float((weight * weight).sum()),
        objects_per_second=rate,
        matches_per_second=float(weight[found].sum()),
        window_s=window_s,
        cells=np.unique(tags.cell),
        postings=np.bincount(owner, minlength=workers),
        checks=checks,
        copies=copies,
        load=costs.c1 * checks + costs.c2 * copies,
        load_now=(costs.c2 * seen_now + costs.c1 * met_now) * rate / len(many),
    )


def _pairs(gridt: Gridt, tags: Tags, sample: ObjectSample) -> tuple[I64, I64]:
    """Of each posting that an object would meet under a term of its own: the object's row, the
    posting's number among the tags."""
    cells, terms = np.unique(tags.cell), np.unique(tags.term)
    level = int(cells[0] >> 28)
    cell = gridt.grid.cells(sample.lon, sample.lat, level)
    at = np.minimum(np.searchsorted(cells, cell), len(cells) - 1)
    inside = cells[at] == cell
    which = np.minimum(np.searchsorted(terms, sample.term), len(terms) - 1)
    row = np.repeat(np.arange(len(cell)), np.diff(sample.term_off))
    met = np.flatnonzero((terms[which] == sample.term) & inside[row])
    order = np.lexsort((tags.term, tags.cell))  # every cell with every term
    return row[met], order[at[row[met]] * len(terms) + which[met]]


def _matches(gridt: Gridt, query: QueryRows, tags: Tags, sample: ObjectSample, near: I64) -> I64:
    """Rows of the objects that match."""
    index, some = GI2(gridt.grid), sample.take(near)
    index.insert(query, tags.off, tags.cell, tags.term)
    found = index.match(int(query.handle[0]), some.lon, some.lat, some.term_off, some.term)
    return near[found.row]


def _copies(few: I64, row: I64, owner: I64, sent: list[Share], weight: F64, workers: int) -> F64:
    """Of each worker the objects a second that it would be sent for this query alone, by those
    of the rows `few`, which go to the workers of the shares `sent` anyway."""
    mine = np.isin(row, few)
    known = [few[share.row] * workers + share.worker for share in sent]
    new = np.setdiff1d(
        row[mine] * workers + owner[mine], np.concatenate([np.zeros(0, np.int64), *known])
    )
    return _sums(new % workers, weight[new // workers], workers)


def _thinned(rows: I64) -> I64:
    """At most MOST of them, by chance: what comes in turns is seen evenly."""
    if len(rows) <= MOST:
        return rows
    return np.sort(np.random.default_rng(len(rows)).choice(rows, MOST, replace=False))


def _fairly(weight: F64) -> I64:
    """At most MOST rows by chance, each as often as it weighs; where there are no more and all
    weigh as much, each once."""
    count = min(MOST, len(weight))
    order = np.random.default_rng(len(weight)).permutation(len(weight))
    places = (np.arange(count) + 0.5) * (weight.sum() / count)
    at = np.searchsorted(np.cumsum(weight[order]), places)
    rows: I64 = order[np.minimum(at, len(weight) - 1)]
    return rows


def _sums(worker: I64, weight: F64, workers: int) -> F64:
    """By worker; of nothing, zeros too."""
    return np.bincount(worker, weight, workers).astype(np.float64)
