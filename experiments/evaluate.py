"""Judges a plan on a period of the stream that it was not made from.

There are two judgements of the same work. Counted exactly: what the gridt of the plan sends to
each worker, at the costs of algorithms.md 1.11. Measured: each worker's share on a real GI2, one
worker after the other at full speed in this process, so that the cluster's throughput is bounded
by the slowest. Neither includes what travels between machines.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ps2stream.dispatcher.gridt import Gridt, ObjectShare
from ps2stream.language.analyzer import Analyzer
from ps2stream.protocol.frame import F64, I64, U64
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.routing.costs import Costs, balance
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.tags import TagShare
from ps2stream.space.grid import Grid
from ps2stream.workers.gi2 import GI2
from ps2stream.workers.load import LoadCounter
from ps2stream.workers.machine import choose_budget


class AnalysedObjects(NamedTuple):
    """Analysed objects: degrees float64[n]; terms ragged, sorted and unique per row."""

    lon: F64
    lat: F64
    term_off: I64
    term: U64


class StreamRound(NamedTuple):
    """A stretch of the stream: its inserts, then its deletes (whole rows, so that they are routed
    like their inserts), then its objects."""

    inserts: QueryRows
    deletes: QueryRows
    objects: AnalysedObjects


@dataclasses.dataclass(frozen=True)
class StreamPeriod:
    """A period of the stream. `live`: the queries that are live when it begins."""

    live: QueryRows
    rounds: Sequence[StreamRound]

    @property
    def tuples(self) -> int:
        """The number of objects, inserts and deletes."""
        return sum(len(r.inserts) + len(r.deletes) + len(r.objects.lon) for r in self.rounds)


class WorkerStep(NamedTuple):
    """The messages that one worker is sent in a round. deleted, delete_tags: handles and tags of
    its deletes."""

    inserts: QueryRows
    tags: TagShare
    deleted: I64
    delete_tags: TagShare
    lsn: int
    share: ObjectShare | None


class DividedPeriod(NamedTuple):
    """A period divided among the workers: what each holds at its beginning and is sent in each
    round, and what a gridt counted meanwhile, as in Judgement. wanted: objects that any worker is
    sent."""

    gridt: Gridt
    start: Sequence[TagShare]
    steps: Sequence[Sequence[WorkerStep]]
    sent: Sequence[tuple[I64, I64]]
    objects: I64
    candidates: I64
    inserts: I64
    deletes: I64
    discarded: int
    wanted: int


@dataclasses.dataclass(frozen=True, eq=False)
class PlanJudgement:
    """The judgement of a plan.

    For each worker, [workers]: objects, candidates, inserts and deletes (postings) int64; load in
    microseconds, float64; bytes of its GI2 int64. seconds float64[rounds, workers] on the kernel.
    sent: the (row, worker) of every copy, for each round. bound: the slowest worker's load if no
    object were copied twice and all workers were balanced.
    """

    tuples: int
    objects: I64
    candidates: I64
    inserts: I64
    deletes: I64
    load: F64
    bound: float
    discarded: int
    matches: int
    seconds: F64
    sent: Sequence[tuple[I64, I64]]
    dispatcher_bytes: int
    units: int
    worker_bytes: I64

    @property
    def throughput(self) -> float:
        """The tuples per second by the cost model: the slowest worker's load is the time."""
        return self.tuples / float(self.load.max()) * 1e6

    @property
    def kernel_throughput(self) -> float:
        """The tuples per second by the measured time of the slowest worker; 0 if not measured."""
        slowest = float(self.seconds.sum(axis=0).max())
        return self.tuples / slowest if slowest else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Returns totals and the figures of each worker; JSON-able."""
        kernel = self.seconds.sum(axis=0)
        return {
            "tuples": self.tuples,
            "throughput": self.throughput,
            "kernel_throughput": self.kernel_throughput,
            "balance": balance(self.load),
            "kernel_balance": balance(kernel) if kernel.any() else 0.0,
            "slowest_over_bound": float(self.load.max()) / self.bound if self.bound else 1.0,
            "copies": float(self.objects.sum()) / max(self._count_wanted(), 1),
            "matches": self.matches,
            "discarded": self.discarded,
            "dispatcher_bytes": self.dispatcher_bytes,
            "units": self.units,
            "worker_bytes": float(self.worker_bytes.mean()),
            "each": {
                "objects": self.objects.tolist(),
                "candidates": self.candidates.tolist(),
                "inserts": self.inserts.tolist(),
                "deletes": self.deletes.tolist(),
                "load": self.load.tolist(),
                "seconds": kernel.tolist(),
                "bytes": self.worker_bytes.tolist(),
            },
        }

    def _count_wanted(self) -> int:
        return sum(len(np.unique(row)) for row, _ in self.sent)


def divide_period(plan: RoutingPlan, analyzer: Analyzer, period: StreamPeriod) -> DividedPeriod:
    """Divides the period by the plan's H1. Raises PlanError for a plan of another text analysis."""
    gridt = Gridt(plan.compile(analyzer), plan.grid)
    m = plan.workers
    live = gridt.expand(period.live)
    gridt.insert(live)
    start = gridt.split(live)
    candidates, inserts, deletes = (np.zeros(m, np.int64) for _ in range(3))
    objects = np.zeros(m, np.int64)
    discarded = wanted = 0
    steps: list[list[WorkerStep]] = [[] for _ in range(m)]
    sent: list[tuple[I64, I64]] = []
    lsn = int(period.live.lsn.max(initial=0))
    for part in period.rounds:
        tags, deleted = gridt.expand(part.inserts), gridt.expand(part.deletes)
        gridt.insert(tags)
        gridt.retire(deleted)
        inserts += np.bincount(tags.worker, minlength=m)
        deletes += np.bincount(deleted.worker, minlength=m)
        candidates += gridt.candidates(*part.objects)
        shares, unwanted = gridt.route(*part.objects)
        discarded += unwanted
        wanted += len(part.objects.lon) - unwanted
        lsn = int(part.inserts.lsn.max(initial=lsn))
        of = {share.worker: share for share in shares}
        for share in shares:
            objects[share.worker] += len(share.row)
        sent.append(_list_copies(shares))
        insert_tags, delete_tags = gridt.split(tags), gridt.split(deleted)
        for w in range(m):
            rows = part.inserts.take(insert_tags[w].row)
            handles = part.deletes.handle[delete_tags[w].row]
            steps[w].append(
                WorkerStep(rows, insert_tags[w], handles, delete_tags[w], lsn, of.get(w))
            )
    return DividedPeriod(
        gridt, start, steps, sent, objects, candidates, inserts, deletes, discarded, wanted
    )


def evaluate(
    plan: RoutingPlan, analyzer: Analyzer, period: StreamPeriod, costs: Costs, repeats: int = 2
) -> PlanJudgement:
    """Judges the plan under this period. Each worker is timed `repeats` times, of which the
    fastest counts; 0 only counts. Raises PlanError for a plan of another text analysis."""
    dealt, m = divide_period(plan, analyzer, period), plan.workers
    candidates, inserts, deletes = dealt.candidates, dealt.inserts, dealt.deletes
    load = _compute_load(costs, candidates, dealt.objects, inserts, deletes)
    whole = _compute_load(costs, candidates.sum(), dealt.wanted, inserts.sum(), deletes.sum())
    seconds = np.zeros((len(period.rounds), m))
    matches, sizes = 0, np.zeros(m, np.int64)
    for w in range(m):
        for attempt in range(repeats):
            took, found, index = run_worker(plan.grid, period.live, dealt.start[w], dealt.steps[w])
            sizes[w] = index.stats().bytes
            if not attempt or took.sum() < seconds[:, w].sum():
                seconds[:, w] = took
        matches += found if repeats else 0
    return PlanJudgement(
        tuples=period.tuples, objects=dealt.objects, candidates=candidates, inserts=inserts,
        deletes=deletes, load=load, bound=float(whole) / m, discarded=dealt.discarded,
        matches=matches, seconds=seconds, sent=dealt.sent, dispatcher_bytes=dealt.gridt.bytes,
        units=len(dealt.gridt), worker_bytes=sizes,
    )  # fmt: skip


def _compute_load(costs: Costs, candidates: Any, objects: Any, inserts: Any, deletes: Any) -> Any:
    return costs.c1 * candidates + costs.c2 * objects + costs.c3 * inserts + costs.c4 * deletes


def _list_copies(shares: Sequence[ObjectShare]) -> tuple[I64, I64]:
    """Returns (row, worker) of every copy."""
    rows = [share.row.astype(np.int64) for share in shares]
    worker = [np.full(len(share.row), share.worker, np.int64) for share in shares]
    none = np.zeros(0, np.int64)
    return np.concatenate([none, *rows]), np.concatenate([none, *worker])


def run_worker(
    grid: Grid,
    live: QueryRows,
    start: TagShare,
    steps: Sequence[WorkerStep],
    counter: LoadCounter | None = None,
) -> tuple[F64, int, GI2]:
    """Runs one worker's period on a GI2 of its own: (seconds of each round, matches, the index).
    The queries that are live at the beginning are not timed. counter: counts what is done."""
    index = GI2(grid)
    index.insert(live.take(start.row), start.off, start.cell, start.term)
    seconds, matches = np.zeros(len(steps)), 0
    for i, step in enumerate(steps):
        began = time.perf_counter()
        index.insert(step.inserts, step.tags.off, step.tags.cell, step.tags.term)
        index.delete(step.deleted, np.full(len(step.deleted), step.lsn, np.int64))
        index.purge(step.lsn)
        index.sweep(choose_budget(index.stats()))
        if counter is not None:
            counter.updates(step.inserts.kind, step.tags.off, step.tags.cell)
            kind = np.full(len(step.deleted), UpdateKind.DELETE, np.uint8)
            counter.updates(kind, step.delete_tags.off, step.delete_tags.cell)
        if (s := step.share) is not None:
            matches += len(index.match(step.lsn, s.lon, s.lat, s.term_off, s.term).row)
            if counter is not None:
                counter.objects(s.lon, s.lat, index.met())
        seconds[i] = time.perf_counter() - began
    return seconds, matches, index
