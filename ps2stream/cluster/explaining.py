"""How a query and an object would meet: cells, terms and workers, by the indexes themselves."""

from __future__ import annotations

import numpy as np

from ps2stream.dispatcher.gridt import Gridt
from ps2stream.rows import ObjectRows, QueryRows
from ps2stream.service.gateway import Meeting
from ps2stream.unit_kernels import LEVEL_SHIFT
from ps2stream.workers.gi2 import GI2


def meeting(gridt: Gridt, query: QueryRows, thing: ObjectRows) -> Meeting:
    """Of one query and one object, were it accepted now. Nothing is changed."""
    tags = gridt.expand(query)
    level = int(tags.cell[0] >> LEVEL_SHIFT)
    here = gridt.grid.cells(thing.lon, thing.lat, level)
    mine = tags.cell == here
    shares, _ = gridt.route(thing.lon, thing.lat, thing.term_off, thing.term)
    index = GI2(gridt.grid)
    index.insert(query, tags.off, tags.cell, tags.term)
    lsn = int(query.handle[0])
    found = index.match(lsn, thing.lon, thing.lat, thing.term_off, thing.term)
    return Meeting(
        matches=len(found.row) > 0,
        cells=np.unique(tags.cell),
        terms=np.unique(tags.term),
        postings=len(tags.cell),
        here=int(here[0]),
        owners=tags.worker[mine],
        sent_to=tuple(share.worker for share in shares),
    )
