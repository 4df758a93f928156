"""How a plan spreads a stream: real posts through the gridt of a real plan, batch by batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ps2stream.dispatcher.gridt import Gridt
from ps2stream.experiments.plans import HYBRID, ExperimentSettings, planned
from ps2stream.experiments.worlds import StreamWorld
from ps2stream.protocol.frame import F64, I64
from ps2stream.protocol.rows import QueryRows
from ps2stream.routing.plan import RoutingPlan

BATCHES = 1_024, 8_192
"""Objects of a batch: of one publication, and of as many as are joined at most."""


class BatchShare(NamedTuple):
    """What the workers get of one batch. objects, candidates: float64[workers]."""

    objects: F64
    candidates: F64


@dataclasses.dataclass(frozen=True)
class RoutingShape:
    """How one region's stream is spread over its workers. batches: by number of objects; copies
    and candidates: of an object; holders: workers of a query; parts: of each worker, of all copies
    and candidates."""

    workers: int
    batches: dict[int, list[BatchShare]]
    copies: float
    candidates: float
    holders: float
    parts: BatchShare

    def receivers(self, objects: float) -> float:
        """Returns the workers that get a share of a batch, interpolated by the logarithm of its
        objects."""
        sizes = sorted(self.batches)
        counts = [
            float(np.mean([np.count_nonzero(share.objects) for share in self.batches[size]]))
            for size in sizes
        ]
        sizes, counts = [1, *sizes], [min(self.copies, counts[0]), *counts]
        return float(np.interp(np.log(max(objects, 1.0)), np.log(sizes), counts))


def shape_routing(
    world: StreamWorld, plan: RoutingPlan, sizes: Sequence[int] = BATCHES
) -> RoutingShape:
    """Routes the judged objects of a world by a plan, with the queries that are live then."""
    gridt = Gridt(plan.compile(world.analyzer), plan.grid)
    live = world.period.live
    tags = gridt.expand(live)
    gridt.insert(tags)
    objects = [part.objects for part in world.period.rounds]
    lon = np.concatenate([o.lon for o in objects])
    lat = np.concatenate([o.lat for o in objects])
    ends = np.cumsum([0, *(len(o.term) for o in objects)])
    off = np.concatenate(
        [np.zeros(1, np.int64), *(o.term_off[1:] + a for o, a in zip(objects, ends, strict=False))]
    )
    term = np.concatenate([o.term for o in objects])
    batches: dict[int, list[BatchShare]] = {}
    for size in sizes:
        found = batches.setdefault(size, [])
        for first in range(0, max(len(lon) - size, 0) + 1, size):
            last = min(first + size, len(lon))
            terms = slice(off[first], off[last])
            part = lon[first:last], lat[first:last], off[first : last + 1] - off[first], term[terms]
            copies = np.zeros(plan.workers)
            for share in gridt.route(*part)[0]:
                copies[share.worker] = len(share.row)
            found.append(BatchShare(copies, gridt.candidates(*part).astype(np.float64)))
    least = min(sizes)
    copies = np.sum([share.objects for share in batches[least]], axis=0)
    met = np.sum([share.candidates for share in batches[least]], axis=0)
    routed = sum(least for _ in batches[least])
    holders = np.mean([len(share.row) for share in gridt.split(tags)]) * plan.workers / len(live)
    return RoutingShape(
        plan.workers, batches, float(copies.sum()) / routed, float(met.sum()) / routed,
        float(holders), BatchShare(_divide(copies), _divide(met)),
    )  # fmt: skip


def count_candidates(world: StreamWorld, plan: RoutingPlan, rows: QueryRows) -> I64:
    """Returns the postings of these queries that each post of the world's stream meets, summed up
    to it, int64[posts + 1]."""
    gridt = Gridt(plan.compile(world.analyzer), plan.grid)
    gridt.insert(gridt.expand(rows))
    posts = world.load.posts
    off, term = world.analyzer.analyse(posts.text_off, posts.text)
    found = np.zeros(len(posts.lon) + 1, np.int64)
    step = 256
    for first in range(0, len(posts.lon), step):
        last = min(first + step, len(posts.lon))
        terms = slice(off[first], off[last])
        part = posts.lon[first:last], posts.lat[first:last], off[first : last + 1] - off[first]
        met = int(gridt.candidates(*part, term[terms]).sum())
        found[first + 1 : last + 1] = found[first] + np.arange(1, last - first + 1) * met // (
            last - first
        )
    return found


def make_plan(world: StreamWorld, workers: int, settings: ExperimentSettings) -> RoutingPlan:
    """Returns the hybrid plan of the world for so many workers."""
    settings.progress(f"{world.name}: a plan for {workers} workers")
    return planned(world, HYBRID, workers, settings)


def _divide(counts: F64) -> F64:
    """Returns what part of all each is."""
    return counts / max(float(counts.sum()), 1.0)
