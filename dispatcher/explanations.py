"""Explanations of how a query and an object would meet: cells, terms and workers, as the indexes
themselves find them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from ps2stream.dispatcher.gateway import MatchExplanation
from ps2stream.dispatcher.gridt import Gridt
from ps2stream.dispatcher.ports import NewIndex
from ps2stream.language.analyzer import Analyzer
from ps2stream.language.literals import WatchedLiterals
from ps2stream.language.object_terms import NO_VALUES, ComparedValues, list_compared, search_rows
from ps2stream.protocol.frame import I64, U8
from ps2stream.protocol.rows import ObjectRows, QueryRows
from ps2stream.routing.h1 import NO_GROUPS, WorkerGroups
from ps2stream.routing.tags import QueryTags
from ps2stream.routing.unit_kernels import LEVEL_SHIFT, U16
from ps2stream.space.grid import Grid


class QueryRouter(Protocol):
    """A router machine, as explanations need it."""

    gridt: Gridt

    def owned_by(self, handle: int) -> int: ...


class ExpandedQuery(NamedTuple):
    """One query with its tags by the plan of `plan_version`, which has this number of workers, and
    these groups of them. All that follows from it is found without the dispatcher's machine."""

    query: QueryRows
    tags: QueryTags
    workers: int
    grid: Grid
    plan_version: int
    groups: WorkerGroups = NO_GROUPS

    @property
    def holder(self) -> U16:
        """What holds each tag: a worker, or a group of which each worker does."""
        tags = self.tags
        return self.groups.choose_shards(tags.worker, tags.term, tags.tag_place)

    def list_owners(self, holder: int) -> tuple[int, ...]:
        """Returns the workers that hold a tag, by `holder`."""
        return self.groups.list_members(holder)

    def list_shards(self, owner: int) -> tuple[int, ...]:
        """Returns the workers among which the queries of a unit are divided, by the column `worker`
        of its tag; none if it is not sharded."""
        return self.groups.list_members(owner) if self.groups.is_sharded(owner) else ()


def expand_query(router: QueryRouter, query: QueryRows) -> ExpandedQuery:
    """Expands one query, which may be stored or not; nothing is changed."""
    gridt = router.gridt
    version = router.owned_by(int(query.handle[0]))
    tags, groups = gridt.expand(query), gridt.h1.groups
    return ExpandedQuery(query, tags, gridt.workers, gridt.grid, version, groups)


def search_objects(rows: ObjectRows, query: QueryRows, analyzer: Analyzer) -> ObjectRows:
    """Returns objects that have been searched for the phrases, prefixes and predicates of a
    query, wherever they are."""
    literals = WatchedLiterals.of(query).everywhere().view()
    return search_rows(rows, analyzer, literals) if len(literals.term) else rows


def compared_by(query: QueryRows, opaque: tuple[I64, U8], analyzer: Analyzer) -> ComparedValues:
    """Returns the values of objects that a query compares, by what is opaque of them."""
    return list_compared(opaque, analyzer, WatchedLiterals.of(query).view())


def explain_meeting(
    expanded: ExpandedQuery,
    new_index: NewIndex,
    thing: ObjectRows,
    values: ComparedValues = NO_VALUES,
) -> MatchExplanation:
    """Explains how one query and one object would meet if the object were accepted now and there
    were no other query. values: of the object, those that the query compares."""
    query, tags, grid = expanded.query, expanded.tags, expanded.grid
    level = int(tags.cell[0] >> LEVEL_SHIFT)
    here = grid.cells(thing.lon, thing.lat, level)
    posted_here = tags.cell == here
    index = new_index(grid)
    index.insert(query, tags.off, tags.cell, tags.term)
    lsn = int(query.handle[0])
    found = index.match(
        lsn, thing.lon, thing.lat, thing.term_off, thing.term,
        value_off=values.off, value=values.word,
    )  # fmt: skip
    owners = tuple(map(expanded.list_owners, expanded.holder[posted_here].tolist()))
    shards = tuple(map(expanded.list_shards, tags.worker[posted_here].tolist()))
    sought = np.isin(tags.term[posted_here], thing.term).tolist()
    met = {workers for workers, some in zip(owners, sought, strict=True) if some}
    certain = {workers[0] for workers in met if len(workers) == 1}
    certain.update(w for group, some in zip(shards, sought, strict=True) if some for w in group)
    groups = sorted(workers for workers in met if certain.isdisjoint(workers))
    return MatchExplanation(
        matches=len(found.row) > 0,
        plan_version=expanded.plan_version,
        cells=np.unique(tags.cell),
        terms=np.unique(tags.term),
        postings=len(tags.cell),
        here=int(here[0]),
        owners=owners,
        sent_to=tuple(sorted(certain)),
        sent_to_one_of=tuple(groups),
        shards=shards,
    )
