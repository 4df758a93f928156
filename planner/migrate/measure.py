"""The bytes of queries that plans give to other workers: the same code under NumPy and on Spark's
executors.

A worker that gains units fetches each query with a posting in them once, whole, with the postings
that it gains (workers/portion.py). Here the same is counted of the same rows by the same H1, in
whole bytes. Only hashes of terms that no leaf lists differ: they depend on the service's salt.

Functions take Arrow batches of LIVE and yield tables that are added up by their keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.planner.migrate.queries import rows_of
from ps2stream.protocol.frame import I64, U16, row_of
from ps2stream.routing.h1 import H1
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.tags import ROW_TAG_BYTES, TAG_BYTES, QueryTagger, QueryTags, measure_gain
from ps2stream.routing.unit_kernels import FIRST_GROUP, LEVEL_SHIFT

MOVED = ("queries", "bytes")
KEPT = pa.schema([("worker", pa.int64()), ("role", pa.int64()), ("bytes", pa.int64())])
"""Bytes that need not move if a worker takes a role, that of a worker of the following plan; with
-1 for both, what would be fetched by workers that have nothing."""
PARTS = pa.schema(
    [
        ("cell", pa.int64()),
        ("source", pa.int64()),
        ("target", pa.int64()),
        ("queries", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
"""What changes its owner in a cell of the base level."""
STEPS = pa.schema(
    [("step", pa.int64()), ("target", pa.int64()), ("queries", pa.int64()), ("bytes", pa.int64())]
)
"""What a worker fetches in a step."""
Batches = Iterator[Any]


class PlanTexts(NamedTuple):
    """Plans to be compared, each as JSON, with the text analysis and the frequencies (JSON) that
    queries are posted by. Text, as executors are sent it."""

    analysis: Analysis
    frequencies: str
    plans: tuple[str, ...]

    @classmethod
    def of(cls, base: RoutingPlan, *plans: RoutingPlan) -> PlanTexts:
        """Returns the texts of a plan in force and of others on its grid."""
        texts = []
        for plan in (base, *plans):
            body = plan.to_dict() | {"frequencies": {}}
            body.pop("made", None)
            texts.append(json.dumps(body))
        return cls(base.analysis, json.dumps(dict(base.frequencies)), tuple(texts))


class _RowsAndTags(NamedTuple):
    """The rows' bytes, int64[n], and their tags."""

    size: I64
    tags: QueryTags


def measure_kept(texts: PlanTexts, parts: Batches) -> Batches:
    """Yields KEPT of the first plan and the second."""
    now, then = map(_Compiled.get, texts.plans, [texts.analysis] * 2)
    most = max(now.h1.workers, then.h1.workers)
    kept, fetched = np.zeros((most, most), np.int64), 0
    for rows in _tag_batches(texts, now, parts):
        owners = now.find_owners(rows.tags), then.find_owners(rows.tags)
        more, everything = _sum_kept(rows, *owners, most)
        kept, fetched = kept + more, fetched + everything
    worker, role = np.nonzero(kept)
    columns = (np.append(worker, -1), np.append(role, -1), np.append(kept[worker, role], fetched))
    yield pa.record_batch([*columns], KEPT)


def measure_parts(texts: PlanTexts, parts: Batches) -> Batches:
    """Yields PARTS of the first plan and the second."""
    now, then = map(_Compiled.get, texts.plans, [texts.analysis] * 2)
    for rows in _tag_batches(texts, now, parts):
        yield _list_parts(rows, now.find_owners(rows.tags), then.find_owners(rows.tags))


def measure_steps(texts: PlanTexts, parts: Batches) -> Batches:
    """Yields STEPS: step i, from 0, changes from plan i to plan i + 1."""
    plans = [_Compiled.get(text, texts.analysis) for text in texts.plans]
    for rows in _tag_batches(texts, plans[0], parts):
        holders = [plan.h1.holders(rows.tags.cell, rows.tags.term) for plan in plans]
        for step, ((old, before), (new, after)) in enumerate(
            pairwise(zip(plans, holders, strict=True))
        ):
            yield _list_gains(step, rows, old.h1, before, new.h1, after)


class _Compiled:
    """A plan with its H1."""

    def __init__(self, text: str, analysis: Analysis) -> None:
        self.plan = RoutingPlan.from_dict(json.loads(text), analysis)
        self.h1 = self.plan.compile(_find_analyzer(analysis))

    @staticmethod
    @lru_cache(maxsize=256)
    def get(text: str, analysis: Analysis) -> _Compiled:
        """Returns the plan of a text; executors see the same ones for each batch."""
        return _Compiled(text, analysis)

    def find_owners(self, tags: QueryTags) -> I64:
        return self.h1.owners(tags.cell, tags.term).astype(np.int64)


@lru_cache(maxsize=4)
def _find_analyzer(analysis: Analysis) -> Analyzer:
    return Analyzer(analysis)


@lru_cache(maxsize=4)
def _find_frequencies(text: str, analysis: Analysis) -> Frequencies:
    return Frequencies.of(json.loads(text), _find_analyzer(analysis))


def _tag_batches(texts: PlanTexts, plan: _Compiled, parts: Batches) -> Iterator[_RowsAndTags]:
    known = _find_frequencies(texts.frequencies, texts.analysis)
    tagger = QueryTagger(plan.h1, plan.plan.grid)
    for part in parts:
        if len(part):
            rows = rows_of(part, _find_analyzer(texts.analysis), known)
            yield _RowsAndTags(rows.measure_rows(), tagger.expand(rows))


def _sum_kept(rows: _RowsAndTags, now: I64, then: I64, most: int) -> tuple[I64, int]:
    """Returns (int64[most, most]: the bytes that stay if a worker takes a role; the bytes of all
    roles). A query stays whole where its worker has all postings of it that the role has. On
    coarser levels a hash chooses the owner, whoever takes which role: only what changes counts."""
    row, coarse = row_of(rows.tags.off), rows.tags.cell >> LEVEL_SHIFT > 0
    moved = np.flatnonzero(coarse & (now != then))
    share, count = np.unique(row[moved] * most + then[moved], return_counts=True)
    everything = int(measure_gain(rows.size[share // most], count).sum())
    row, now, then = row[~coarse], now[~coarse], then[~coarse]
    kept = TAG_BYTES * np.bincount(now * most + then, minlength=most * most).astype(np.int64)
    share, at, count = np.unique(row * most + then, return_inverse=True, return_counts=True)
    low, high = np.full(len(share), most), np.full(len(share), -1)
    np.minimum.at(low, at, now)
    np.maximum.at(high, at, now)
    row, role = share // most, share % most
    whole = low == high
    np.add.at(kept, low[whole] * most + role[whole], rows.size[row[whole]] + ROW_TAG_BYTES)
    everything += int(measure_gain(rows.size[row], count).sum())
    return kept.reshape(most, most), everything


def _list_parts(rows: _RowsAndTags, now: I64, then: I64) -> Any:
    moved = np.flatnonzero((now != then) & (rows.tags.cell >> LEVEL_SHIFT == 0))
    key = (rows.tags.cell[moved].astype(np.int64) << 16 | now[moved]) << 16 | then[moved]
    part, at = np.unique(key, return_inverse=True)
    # One query has a posting for each of its terms in a cell: it is fetched once.
    pair = row_of(rows.tags.off)[moved] * max(len(part), 1) + at
    share, tags = np.unique(pair, return_counts=True)
    row, of_part = share // max(len(part), 1), share % max(len(part), 1)
    size = np.zeros(len(part), np.int64)
    np.add.at(size, of_part, measure_gain(rows.size[row], tags))
    queries = np.bincount(of_part, minlength=len(part)).astype(np.int64)
    owners = part >> 16 & 0xFFFF, part & 0xFFFF
    return pa.record_batch([part >> 32, *owners, queries, size], PARTS)


def _list_gains(step: int, rows: _RowsAndTags, old: H1, before: U16, new: H1, after: U16) -> Any:
    """Returns STEPS of one step. before, after: the holders of each tag."""
    tags, place = rows.tags, rows.tags.tag_place
    changed = np.flatnonzero((before != after) | (np.maximum(before, after) >= FIRST_GROUP))
    row = row_of(tags.off)[changed]
    found: list[tuple[int, int, int]] = []
    for worker in _list_gainers(new, after[changed]):
        of = tags.term[changed], place[changed]
        gained = new.held_by(worker, after[changed], *of) & ~old.held_by(
            worker, before[changed], *of
        )
        mine, count = np.unique(row[gained], return_counts=True)
        if len(mine):
            found.append((worker, len(mine), int(measure_gain(rows.size[mine], count).sum())))
    columns = np.array(found, np.int64).reshape(-1, 3).T
    return pa.record_batch([np.full(len(found), step), *columns], STEPS)


def _list_gainers(new: H1, holder: U16) -> list[int]:
    """Returns the workers that are among these holders."""
    if len(holder) and holder.max() >= FIRST_GROUP:
        return list(range(new.workers))
    return [int(worker) for worker in np.unique(holder)]
