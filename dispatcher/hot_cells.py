"""A dispatcher's report on a few cells: recent objects, and the units where they meet queries.

The dispatcher answers while it works, so everything is bounded: the rows of the sample that are
searched, the objects, and the bytes of their texts and attributes.
"""

from __future__ import annotations

import numpy as np

from ps2stream.dispatcher.gridt import Gridt
from ps2stream.dispatcher.literal_table import LiteralTable
from ps2stream.dispatcher.reservoir import ObjectReservoir, ObjectSample
from ps2stream.protocol.frame import I64, U32, U64, row_of
from ps2stream.protocol.messages.loads import SampleReport, SampleRequest
from ps2stream.protocol.opaque import split_opaque

LOOKED_AT = 4_096
BATCHES = 128
OBJECTS = 1_024
TEXT_BYTES = 1 << 18
_ODD = np.uint64(0x9E3779B97F4A7C15)


def report(
    ask: SampleRequest,
    dispatcher: int,
    route: int,
    reservoir: ObjectReservoir,
    gridt: Gridt,
    literals: LiteralTable,
) -> SampleReport:
    """Returns the newest objects in these cells, and the units under which they meet queries."""
    sample, cell = _select_objects(reservoir.newest(LOOKED_AT, BATCHES), gridt, ask.cell)
    attributes = split_opaque(sample.opaque_off, sample.opaque, len(sample.lon))
    unit_cell, term, queries = _find_units(gridt, cell[row_of(sample.term_off)], sample.term)
    return SampleReport(
        dispatcher, ask.epoch, ask.number, route, sample.since, sample.lon, sample.lat,
        sample.text_off, sample.text, attributes.attributes_off, attributes.attributes,
        sample.weight, sample.accepted,
        unit_cell, term, *literals.describe(term), queries,
    )  # fmt: skip


def _select_objects(sample: ObjectSample, gridt: Gridt, cells: U32) -> tuple[ObjectSample, U32]:
    """Returns the newest objects of a sample that are in `cells`, and the cell of each."""
    cell = gridt.grid.cells(sample.lon, sample.lat, 0)
    rows = np.flatnonzero(np.isin(cell, cells))
    sizes = sample.text_off[rows + 1] - sample.text_off[rows]
    if len(sample.opaque_off):
        sizes = sizes + sample.opaque_off[rows + 1] - sample.opaque_off[rows]
    size_bytes = np.cumsum(sizes[::-1])
    many = min(OBJECTS, int(np.searchsorted(size_bytes, TEXT_BYTES, "right")))
    kept = rows[len(rows) - many :]
    found = sample.take(kept)
    if many < len(rows):
        oldest = kept[:1] if many else rows[-1:]
        found = found._replace(since=int(sample.accepted[oldest[0]]))
    return found, cell[kept]


def _find_units(gridt: Gridt, cell: U32, term: U64) -> tuple[U32, U64, I64]:
    """Returns the units with queries, each once (except two whose keys are equal by chance), and
    their numbers of live queries."""
    queries = gridt.queries(cell, term)
    met = np.flatnonzero(queries)
    key = term[met] ^ cell[met] * _ODD
    order = np.argsort(key)
    first = np.ones(len(met), np.bool_)
    first[1:] = np.diff(key[order]) > 0
    met = met[order[first]]
    return cell[met], term[met], queries[met]
