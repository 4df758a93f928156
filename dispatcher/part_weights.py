"""The load of each part of the plan, as far as one dispatcher knows."""

from __future__ import annotations

import numpy as np

from ps2stream.dispatcher.gridt import Gridt
from ps2stream.dispatcher.reservoir import ObjectSample
from ps2stream.routing.costs import PartWeights
from ps2stream.routing.unit_kernels import LEVEL_SHIFT


def weigh_parts(gridt: Gridt, sample: ObjectSample) -> PartWeights:
    """Returns as weights, by cell and worker, the objects of `sample` that would be sent there; if
    there are none, the live queries."""
    shares, _ = gridt.route(sample.lon, sample.lat, sample.term_off, sample.term)
    if shares:
        lon, lat = (np.concatenate([getattr(s, name) for s in shares]) for name in ("lon", "lat"))
        worker = np.repeat([share.worker for share in shares], [len(s.row) for s in shares])
        weight = sample.weight[np.concatenate([share.row for share in shares])]
        return PartWeights(gridt.grid.cells(lon, lat, 0), worker.astype(np.int64), weight)
    cell, owner, count = gridt.held()
    base = np.flatnonzero(cell >> LEVEL_SHIFT == 0)
    return PartWeights(cell[base], owner[base].astype(np.int64), count[base].astype(np.float64))
