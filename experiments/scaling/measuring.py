"""All that the model needs, measured on this machine: shapes of plans, costs of rooms and links."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from ps2stream.benchmarks import merger
from ps2stream.benchmarks.workload import Workload
from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.experiments.plans import ExperimentSettings
from ps2stream.experiments.scaling.costs import ServiceCosts, fit_costs
from ps2stream.experiments.scaling.links import measure_links
from ps2stream.experiments.scaling.rooms import RoomBench, RoomSample, RoomSizes
from ps2stream.experiments.scaling.shapes import (
    RoutingShape,
    count_candidates,
    make_plan,
    shape_routing,
)
from ps2stream.experiments.worlds import StreamWorld
from ps2stream.store.segments import SegmentLog

SYNCS, SYNC_BYTES = 50, 100_000
SESSIONS, MERGED = 200, 6


class MeasureSize(NamedTuple):
    """How much is measured: the numbers of workers and the objects of the batches that rooms are
    measured with, how many batches, and the numbers of workers that plans are made for."""

    workers: Sequence[int]
    batches: Sequence[int]
    rounds: int
    planned: Sequence[int]


SMALL = MeasureSize((2, 8), (256, 4_096), 6, (1, 2, 4, 8, 16))
LARGE = MeasureSize((2, 4, 16), (128, 1_024, 8_192), 12, (1, 2, 4, 8, 16, 32, 64))


@dataclasses.dataclass(frozen=True)
class MeasuredCosts:
    """What was measured. growth: by how much slower than the live queries the units of H2 grow,
    as an exponent; pairs: matches of an object."""

    costs: ServiceCosts
    near: ServiceCosts
    """The same with links over Unix sockets, as on one host."""
    shapes: dict[int, RoutingShape]
    pairs: float
    growth: float


def measure_service(
    world: StreamWorld, size: MeasureSize, settings: ExperimentSettings
) -> MeasuredCosts:
    """Measures rooms, links, logs and plans under the stream of a world."""
    samples: list[RoomSample] = []
    sizes: list[RoomSizes] = []
    for workers in size.workers:
        plan = make_plan(world, workers, settings)
        met = count_candidates(world, plan, world.period.live)
        for batch in size.batches:
            settings.progress(f"rooms: {workers} workers, batches of {batch:,} objects")
            bench = RoomBench(world.load, plan, batch)
            rounds = min(size.rounds, max(len(world.load.posts.lon) // batch, 2))
            found, kept = bench.measure(rounds, min(rounds, 6), met)
            samples += found
            sizes.append(kept)
    settings.progress("links, syncs and sessions")
    session_us, sync_us = _measure_sessions(), _measure_syncs()
    far, near = measure_links(over_tcp=True), measure_links(over_tcp=False)
    settings.progress("rooms: half of the queries")
    less = RoomBench(_halve_queries(world.load), plan, size.batches[-1])
    found, half = less.measure(size.rounds, 1, met // 2)
    costs = fit_costs([*samples, *found], sizes[-1], far, session_us, sync_us)
    objects = [sample for sample in samples if sample.objects]
    pairs = median(s.flows["MatchBatch"].rows / s.objects for s in objects)
    shapes = {n: shape_routing(world, make_plan(world, n, settings)) for n in size.planned}
    return MeasuredCosts(
        costs, dataclasses.replace(costs, link=near), shapes, pairs, find_growth(half, sizes[-1])
    )


def find_growth(less: RoomSizes, more: RoomSizes) -> float:
    """Returns the exponent by which units grow with live queries."""
    return math.log(more.units / less.units) / math.log(more.queries / less.queries)


def _halve_queries(load: Workload) -> Workload:
    """Returns the workload with the later half of the queries that are live at its start."""
    first = load.start // 2
    interests = load.interests
    columns = {
        field.name: getattr(interests, field.name)[first:]
        for field in dataclasses.fields(interests)
    }
    return dataclasses.replace(
        load, interests=dataclasses.replace(interests, **columns), start=load.start - first,
        square=load.square[first:] if len(load.square) else load.square, kind=load.kind[first:],
    )  # fmt: skip


def _measure_sessions() -> float:
    """Returns the CPU microseconds that a merger takes for each further session of a batch."""
    took = []
    for sessions in (SESSIONS, 1):
        with PrivateFolder() as folder:
            log = SegmentLog.open(folder.path)
            took.append(float(merger.run(sessions, 0, MERGED, log)["cpu_ms"]))
            log.close()
    return max(1e3 * (took[0] - took[1]) / (SESSIONS - 1), 0.0)


def _measure_syncs() -> float:
    """Returns the microseconds that a sync takes on the disk of temporary files."""
    took = []
    with PrivateFolder() as folder:
        descriptor = os.open(Path(folder.path) / "log", os.O_CREAT | os.O_WRONLY)
        for _ in range(SYNCS):
            os.write(descriptor, bytes(SYNC_BYTES))
            began = time.perf_counter()
            os.fdatasync(descriptor)
            took.append(1e6 * (time.perf_counter() - began))
        os.close(descriptor)
    return median(took)
