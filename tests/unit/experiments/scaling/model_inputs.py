"""Costs and shapes of round numbers, for tests of the model."""

from __future__ import annotations

import numpy as np

from ps2stream.experiments.scaling.costs import ServiceCosts
from ps2stream.experiments.scaling.kinds import DISPATCHER, MERGER, SEQUENCER, WORKER
from ps2stream.experiments.scaling.links import LinkCost
from ps2stream.experiments.scaling.rooms import PUBLISH, ROUTE, UPDATE, RoomSizes
from ps2stream.experiments.scaling.shapes import BatchShare, RoutingShape

FACTORS = {
    (PUBLISH, DISPATCHER): (100.0, 1.0),
    (ROUTE, DISPATCHER): (50.0, 0.5, 5.0),
    ("RoutedObjects", DISPATCHER): (10.0, 0.1),
    ("RoutedObjects", WORKER): (100.0, 0.2, 0.05),
    ("MatchBatch", WORKER): (10.0, 0.01),
    ("MatchBatch", DISPATCHER): (20.0, 0.01, 100.0),
    ("MatchRelease", DISPATCHER): (20.0, 0.01),
    ("MatchRelease", MERGER): (200.0, 0.1),
    ("ReleasesKept", DISPATCHER): (5.0, 0.0),
    ("StreamDelivery", MERGER): (20.0, 0.0),
    ("StreamDelivery", DISPATCHER): (50.0, 0.0),
    (UPDATE, DISPATCHER): (100.0, 2.0),
    ("UpdateRequest", SEQUENCER): (100.0, 2.0),
    ("LedgerBatch", DISPATCHER): (100.0, 1.0),
    ("WorkerUpdates", WORKER): (50.0, 1.0),
    ("MergerQueries", MERGER): (50.0, 0.1),
    ("AppliedReport", SEQUENCER): (20.0, 0.0),
}
SIZES = {
    "RoutedObjects": (200.0, 120.0),
    "MatchBatch": (200.0, 20.0),
    "MatchRelease": (500.0, 30.0),
    "StreamDelivery": (100.0, 11.0),
    "LedgerBatch": (100.0, 200.0),
}
KEPT = RoomSizes(10_000, 20_000, 100.0, 150.0, 90.0, 110.0, 20.0, 2.0)
COSTS = ServiceCosts(FACTORS, SIZES, KEPT, LinkCost(20.0, 0.001, 100.0), 30.0, 1_000.0)


def make_shape(workers: int) -> RoutingShape:
    """Returns a shape in which every worker gets the same of every batch: 1 copy and 20 candidates
    of an object in all."""
    even = np.full(workers, 1 / workers)
    batches = {
        size: [BatchShare(even * size, 20 * even * size) for _ in range(3)]
        for size in (1_024, 8_192)
    }
    return RoutingShape(workers, batches, 1.0, 20.0, 1.2, BatchShare(even, even))
