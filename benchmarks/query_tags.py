"""The queries of a workload as rows, with the tags of their postings."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from ps2stream.benchmarks.workload import Workload
from ps2stream.language.analyzer import Analyzer, Frequencies
from ps2stream.language.expression import compile_column
from ps2stream.protocol.frame import I64, U32, U64, strings_to_column
from ps2stream.protocol.rows import QueryRows, RegionShape, UpdateKind
from ps2stream.routing.tag_kernels import expand_tags, tag_sizes
from ps2stream.space.grid import Grid
from ps2stream.space.space_kernels import rect_boxes


class TaggedRows(NamedTuple):
    """Query rows and their tags, as a dispatcher would send them to the only worker."""

    rows: QueryRows
    off: I64
    cell: U32
    term: U64


def query_rows(
    load: Workload, analyzer: Analyzer, frequencies: Frequencies, first: int, last: int
) -> QueryRows:
    """Returns interests first..last - 1 as insert rows; LSN and handle are 1 + their number."""
    part = dataclasses.replace(
        load.interests,
        **{
            f.name: getattr(load.interests, f.name)[first:last]
            for f in dataclasses.fields(load.interests)
        },
    )
    n = len(part.every)
    off, source = strings_to_column(dataclasses.replace(load, interests=part).expressions())
    compiled = compile_column(off, source, analyzer, frequencies)
    if compiled.errors:
        raise compiled.errors[0][1]
    boxes = np.empty((2 * n, 4))
    box_off = np.empty(n + 1, np.int64)
    count = rect_boxes(part.rect, box_off, boxes)
    nothing = np.zeros(n + 1, np.int64)
    handle = np.arange(first + 1, last + 1)
    return QueryRows(
        kind=np.full(n, UpdateKind.INSERT, np.uint8),
        lsn=handle,
        handle=handle,
        session=np.ones(n, np.int64),
        id_off=nothing,
        id=np.zeros(0, np.uint8),
        form=compiled.form,
        post=compiled.post,
        term_off=compiled.term_off,
        term=compiled.term,
        prog_off=compiled.prog_off,
        prog=compiled.prog,
        box_off=box_off,
        box=boxes[:count].ravel(),
        shape=np.full(n, RegionShape.RECT, np.uint8),
        geom_off=np.arange(n + 1) * 4,
        geom=part.rect.ravel(),
        source_off=nothing,
        source=np.zeros(0, np.uint8),
    )


def tags_of(rows: QueryRows, grid: Grid) -> TaggedRows:
    """Returns all tags of the rows, as if one worker held everything."""
    cell_off, cell = grid.cover(rows.box_off, rows.box)
    off = np.zeros(len(rows) + 1, np.int64)
    tag_sizes(cell_off, rows.post, off)
    tag_cell, tag_term = np.empty(off[-1], np.uint32), np.empty(off[-1], np.uint64)
    expand_tags(cell_off, cell, rows.post, rows.term_off, rows.term, tag_cell, tag_term)
    return TaggedRows(rows, off, tag_cell, tag_term)
