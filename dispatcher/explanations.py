"""Explanations of how a query and an object would meet: cells, terms and workers, as the indexes
themselves find them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from ps2stream.dispatcher.gateway import MatchExplanation
from ps2stream.dispatcher.gridt import Gridt
from ps2stream.dispatcher.ports import NewIndex
from ps2stream.protocol.rows import ObjectRows, QueryRows
from ps2stream.routing.unit_kernels import LEVEL_SHIFT


class QueryRouter(Protocol):
    """A router machine, as explanations need it."""

    gridt: Gridt

    def owned_by(self, handle: int) -> int: ...


def explain_meeting(
    router: QueryRouter,
    lock: AbstractContextManager[object],
    new_index: NewIndex,
    query: QueryRows,
    thing: ObjectRows,
) -> MatchExplanation:
    """Explains how one query and one object would meet if the object were accepted now and there
    were no other query. Nothing is changed; `lock`, the router's, is held only while the router
    expands the query."""
    gridt, lsn = router.gridt, int(query.handle[0])
    with lock:
        tags = gridt.expand(query)
        version = router.owned_by(lsn)
    level = int(tags.cell[0] >> LEVEL_SHIFT)
    here = gridt.grid.cells(thing.lon, thing.lat, level)
    posted_here = tags.cell == here
    index = new_index(gridt.grid)
    index.insert(query, tags.off, tags.cell, tags.term)
    found = index.match(lsn, thing.lon, thing.lat, thing.term_off, thing.term)
    owners, sought = tags.worker[posted_here], np.isin(tags.term[posted_here], thing.term)
    return MatchExplanation(
        matches=len(found.row) > 0,
        plan_version=version,
        cells=np.unique(tags.cell),
        terms=np.unique(tags.term),
        postings=len(tags.cell),
        here=int(here[0]),
        owners=owners,
        sent_to=tuple(np.unique(owners[sought]).tolist()),
    )
