"""The planner's statistics of a few hot cells, made from the dispatchers' samples of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ps2stream.language.analyzer import Analyzer
from ps2stream.language.literal_names import name_literals
from ps2stream.language.literals import WatchedLiterals
from ps2stream.planner.counting import POSTINGS, find, ragged
from ps2stream.planner.hits import UnitHits
from ps2stream.planner.objects import opaque_of
from ps2stream.planner.recent import copies
from ps2stream.planner.sample import UnitCounts, build_sample, ordered, posts, units_of
from ps2stream.planner.statistics import CellTable, Statistics
from ps2stream.protocol.frame import I64, U8, column_to_strings
from ps2stream.protocol.messages.loads import SampleReport
from ps2stream.routing.plan import TOP_TERM, hash_units
from ps2stream.space.grid import Grid

NAMED = 4_096
"""The most phrases, prefixes, predicates and pairs whose texts are looked for."""
CellStatistics = Statistics
"""The statistics of the cells that were requested."""


def statistics(
    reports: Sequence[SampleReport], grid: Grid, analyzer: Analyzer, seed: int = 0
) -> CellStatistics | None:
    """Returns the statistics of the sampled cells, or None if no object or no posting is left.

    They hold the objects that several dispatchers reported in the period that all of them cover,
    each dispatcher's in proportion to what it accepted, and the queries under the terms of these
    objects. Terms that no sampled object has are not known by name: they are left out.
    """
    since = max(report.since for report in reports)
    lon, lat, weight, accepted = (
        np.concatenate([getattr(r, name) for r in reports])
        for name in ("lon", "lat", "weight", "accepted")
    )
    text = [t for r in reports for t in column_to_strings(r.text_off, r.text)]
    rows = np.flatnonzero(accepted >= since)
    rows = np.repeat(rows, copies(weight[rows], seed))
    texts = [text[row] for row in rows.tolist()]
    every = [a for r in reports for a in _split_bytes(r.attributes_off, r.attributes)]
    attributes = [every[row] for row in rows.tolist()]
    objects = posts(lon[rows], lat[rows], texts, attributes=attributes)
    cell, term, kind, size, queries = (
        np.concatenate([getattr(r, name) for r in reports])
        for name in ("cell", "term", "kind", "size", "queries")
    )
    literals = _take_most_posted(WatchedLiterals.everywhere_of(term, kind, size), queries)
    named = name_literals(literals, ragged(objects.column("text")), opaque_of(objects), analyzer)
    words = [TOP_TERM, *analyzer.tokens("\n".join(texts)), *named.values()]
    hashes = hash_units(analyzer, words)
    order = np.argsort(hashes)
    at, known = find(hashes[order], term)
    # Every dispatcher counts all queries, so one report is enough; one may be slightly newer.
    count: dict[tuple[int, str], int] = {}
    for unit in np.flatnonzero(known).tolist():
        count[int(cell[unit]), words[order[at[unit]]]] = int(queries[unit])
    if not texts or not count:
        return None
    none = np.zeros(len(count), np.int64)
    columns = [*map(list, zip(*count, strict=True)), list(count.values()), none, none]
    postings = ordered(pa.table(columns, schema=POSTINGS))
    hits = UnitHits(units_of(postings, analyzer), analyzer, grid)
    hits.add(objects)
    held = np.flatnonzero(hits.cells)
    cells = CellTable(held, hits.cells[held].astype(np.float64))
    numbers = {"live": 0, "inserts": 0, "deletes": 0}
    tables = UnitCounts(postings, cells, hits.units, hits.signatures())
    return build_sample(grid, {}, numbers, tables).stats


def _split_bytes(off: I64, data: U8) -> list[bytes]:
    held = data.tobytes()
    return [held[a:b] for a, b in itertools.pairwise(off.tolist())]


def _take_most_posted(literals: WatchedLiterals, queries: I64) -> WatchedLiterals:
    """Returns the literals among terms, each once; of many those with the most queries."""
    some = np.flatnonzero(literals.kind)
    some = some[np.argsort(-queries[some], kind="stable")]
    _, first = np.unique(literals.term[some], return_index=True)
    return literals.take(some[np.sort(first)[:NAMED]])
