"""How many actors of each role a number of hosts has, how much they can take, and what is full
first."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

from ps2stream.experiments.scaling.costs import ServiceCosts
from ps2stream.experiments.scaling.flows import (
    JOINED,
    Deployment,
    Design,
    FlowRates,
    flow_objects,
    price_flows,
    rate_flows,
)
from ps2stream.experiments.scaling.kinds import DISPATCHER
from ps2stream.experiments.scaling.shapes import RoutingShape
from ps2stream.routing.unit_kernels import FIRST_GROUP

CORES = 4
"""Cores of a host, each for one actor: an assumption."""
SESSIONS_PER_NODE = 10
"""Sessions that are sent matches, for each host: an assumption."""
QUERIES_PER_NODE = 1_000_000
"""Live queries for each host: the targets have a hundred million on a hundred."""
COUNTS = 1, 2, 4, 8, 20, 50, 120, 300, 800
"""Numbers of dispatchers and of mergers that are tried."""
REST = 1.0, 0.25, 0.06
"""Of all other actors, the parts that are tried as workers: more of them cost messages."""
CLOSE = 0.005
_STEPS = 12


class Sizing(NamedTuple):
    """The best division of the actors of some hosts among the roles: what it can take, and what is
    full then."""

    nodes: int
    at: Deployment
    full: FlowRates

    @property
    def first(self) -> str:
        """The resource that is full first."""
        return max(self.full.busy, key=lambda name: self.full.busy[name])


def choose_shape(shapes: Mapping[int, RoutingShape], workers: int) -> RoutingShape:
    """Returns the shape of the largest regions that use the most of so many workers."""
    return shapes[max((workers // n * n, n) for n in shapes if n <= workers)[1]]


def find_limit(costs: ServiceCosts, at: Deployment, design: Design, batch: float) -> FlowRates:
    """Returns the flows at the most objects a second for which nothing is more than full."""
    objects = 1e5
    for _ in range(_STEPS):
        found = rate_flows(costs, at, design, objects, batch)
        fullest = max(found.busy.values())
        if abs(fullest - 1) < CLOSE:
            break
        objects /= fullest  # all grows with the objects, or more slowly
    return found


def divide_actors(
    costs: ServiceCosts, shapes: Mapping[int, RoutingShape], nodes: int, design: Design,
    pairs: float,
) -> Sizing:  # fmt: skip
    """Returns the division of the actors of so many hosts that can take the most objects."""
    actors = nodes * CORES - design.shards
    least = Deployment(1, min(shapes), 1, 1, shapes[min(shapes)], pairs)
    routed = price_flows(costs, flow_objects(least, design, JOINED), 0.0)[DISPATCHER]
    most = JOINED * 1e6 / routed  # objects a second of a dispatcher that has one worker
    best: Sizing | None = None
    tried: set[tuple[int, int, int]] = set()
    for dispatchers, mergers, w in itertools.product(COUNTS, COUNTS, REST):
        workers = min(actors - dispatchers - mergers, FIRST_GROUP - 1)
        workers = max(int(w * workers), min(shapes))
        count = dispatchers, workers, mergers
        if sum(count) > actors or count in tried:
            continue
        tried.add(count)
        if best is not None and dispatchers * most < best.full.objects:
            continue  # their dispatchers alone cannot take as many
        shape = choose_shape(shapes, workers)
        used = workers // shape.workers * shape.workers
        sessions = nodes * SESSIONS_PER_NODE
        at = Deployment(dispatchers, used, mergers, sessions, shape, pairs)
        full = find_limit(costs, at, design, JOINED)
        if best is None or full.objects > best.full.objects:
            best = Sizing(nodes, at, full)
    assert best is not None
    return best


def count_memory(
    costs: ServiceCosts, at: Deployment, design: Design, queries: float, units: float
) -> dict[str, float]:
    """Returns the bytes of one actor by role that grow with the live queries. units: of a live
    query, as the same units come to have more queries."""
    kept = costs.kept
    per_unit = kept.dispatcher * kept.queries / kept.units
    own = queries / design.shards if design.by_region else queries
    return {
        "dispatcher": own * units * per_unit,
        "worker": queries * kept.worker / at.workers,
        "sequencer": queries * kept.sequencer / design.shards,
    }
