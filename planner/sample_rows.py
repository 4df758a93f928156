"""The sample row by row, for the algorithm that the tables of counts are not enough for.

Algorithm 1 to the letter needs all terms of objects and queries, and it counts a query once in a
subspace, however many cells and terms it is posted under; counts by cell and term have lost both.
Rows are kept only when that algorithm is asked for, and at most MAX_ROWS of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import TOP, Analyzer, Frequencies
from ps2stream.language.expression import compile_column
from ps2stream.language.object_terms import find_terms
from ps2stream.planner.counting import boxes, find, posted_terms, ragged
from ps2stream.planner.objects import opaque_of
from ps2stream.protocol.frame import F64, I64, U64, row_of, take_ragged
from ps2stream.routing.plan import hash_units
from ps2stream.space.grid import Grid

I32 = np.ndarray[Any, np.dtype[np.int32]]
MAX_ROWS = 2_000_000
"""The most objects, and the most queries, that are kept as rows."""
OBJECT_ROWS = pa.schema([("cell", pa.int64()), ("terms", pa.list_(pa.int64()))])
"""Objects: the base-level cell; hashes of all terms."""
QUERY_ROWS = pa.schema(
    [
        ("cells", pa.list_(pa.int64())),
        ("terms", pa.list_(pa.int64())),
        ("posted", pa.list_(pa.int64())),
        ("live", pa.int64()),
        ("inserts", pa.int64()),
        ("deletes", pa.int64()),
    ]
)
"""Queries of the base level: the cells that they touch; hashes of all terms, and of those that
they are posted under."""


@dataclasses.dataclass(frozen=True, eq=False)
class SampleRows:
    """Objects and queries by number.

    Objects: cell int64[n], of the grid; terms ragged int32 (off, term), below `vocabulary`; hits
    ragged int32 (hit_off, hit): those of `Statistics.terms` that are posted in its cell. Queries:
    cells ragged int64 (in_off, in_cell); terms ragged int32 (word_off, word); posted ragged int32
    (post_off, post), numbers in `Statistics.terms`; live, inserts, deletes float64[q], 0 or 1.
    """

    vocabulary: int
    cell: I64
    off: I64
    term: I32
    hit_off: I64
    hit: I32
    in_off: I64
    in_cell: I64
    word_off: I64
    word: I32
    post_off: I64
    post: I32
    live: F64
    inserts: F64
    deletes: F64

    @classmethod
    def of(cls, objects: Any, queries: Any, terms: Sequence[str], analyzer: Analyzer) -> SampleRows:
        """Numbers tables of OBJECT_ROWS and QUERY_ROWS. terms: Statistics.terms."""
        off, held = _read_lists(objects, "terms")
        word_off, word = _read_lists(queries, "terms")
        post_off, post = _read_lists(queries, "posted")
        in_off, cells = _read_lists(queries, "cells")
        known, number = np.unique(np.concatenate([held, word]), return_inverse=True)
        hashes = hash_units(analyzer, terms)
        order = np.argsort(hashes)
        at, posted = find(hashes[order], post.view(np.uint64))
        assert posted.all()
        at_object, is_posted = find(hashes[order], held.view(np.uint64))
        order = order if len(order) else np.zeros(1, np.int64)  # no query: nothing is posted
        # The pseudo-term of queries without words is no word that texts could have in common.
        texts = known.view(np.uint64) != TOP
        numbers = np.where(texts, np.cumsum(texts) - 1, -1)[number]
        counts = (queries[n].to_numpy().astype(np.float64) for n in ("live", "inserts", "deletes"))
        return cls.number(
            int(texts.sum()),
            objects["cell"].to_numpy(),
            _drop(off, numbers[: len(held)], numbers[: len(held)] >= 0),
            _drop(off, order[at_object], is_posted),
            (in_off, cells),
            _drop(word_off, numbers[len(held) :], numbers[len(held) :] >= 0),
            (post_off, order[at].astype(np.int32)),
            *counts,
        )

    @classmethod
    def number(
        cls, vocabulary: int, cell: I64, terms: tuple[I64, I32], posted: tuple[I64, I32],
        cells: tuple[I64, I64], words: tuple[I64, I32], posts: tuple[I64, I32],
        live: F64, inserts: F64, deletes: F64,
    ) -> SampleRows:  # fmt: skip
        """Keeps of the `posted` terms of each object those that are posted in its cell; ragged
        columns as (offsets, values)."""
        in_off, in_cell = cells
        post_off, post = posts
        size = np.diff(in_off)
        pairs = size * np.diff(post_off)
        row = np.repeat(np.arange(len(pairs)), pairs)
        k = np.arange(len(row)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
        span = 1 + int(max(post.max(initial=0), posted[1].max(initial=0)))
        at = in_cell[in_off[row] + k % size[row]]
        unit = np.unique(at * span + post[post_off[row] + k // size[row]])
        key = cell[row_of(posted[0])] * span + posted[1]
        hit_off, hit = _drop(*posted, find(unit, key)[1])
        return cls(
            vocabulary, cell, *terms, hit_off, hit, in_off, in_cell, *words, post_off, post,
            live, inserts, deletes,
        )  # fmt: skip


def object_rows(objects: Any, analyzer: Analyzer, grid: Grid, literals: Any) -> Any:
    """Returns OBJECT_ROWS of a batch of objects.OBJECTS. literals: those that are terms, as
    UnitNumbers has them."""
    lon, lat = (objects.column(name).to_numpy() + 0.0 for name in ("lon", "lat"))
    texts, opaque = ragged(objects.column("text")), opaque_of(objects)
    off, term = find_terms(analyzer, texts, opaque, literals)
    cell = pa.array(grid.cells(lon, lat, 0).astype(np.int64))
    return pa.table([cell, _make_lists(off, term)], schema=OBJECT_ROWS)


def query_rows(queries: Any, analyzer: Analyzer, frequencies: Frequencies, grid: Grid) -> Any:
    """Returns QUERY_ROWS of a batch of counting.QUERIES whose expressions are known to be right;
    queries of coarser levels are left out."""
    compiled = compile_column(*ragged(queries.column("expression")), analyzer, frequencies)
    cell_off, cell = grid.cover(*boxes(queries))
    base = np.flatnonzero(cell[cell_off[:-1]] >> 28 == 0)
    post_off, number, posted = posted_terms(compiled)
    lists = [
        _make_lists(*take_ragged(off, values, base))
        for off, values in (
            (cell_off, cell.astype(np.int64)),
            (compiled.term_off, compiled.term),
            (post_off, posted[number]),
        )
    ]
    counts = [queries.column(n).take(pa.array(base)) for n in ("live", "inserts", "deletes")]
    return pa.table([*lists, *counts], schema=QUERY_ROWS)


def check_number(what: str, rows: int) -> None:
    """Raises PlanError for more rows than are kept."""
    if rows > MAX_ROWS:
        raise PlanError(
            f"algorithm: hybrid-paper plans from rows, at most {MAX_ROWS:,} {what}, "
            f"got {rows:,}: give a smaller sample, or take hybrid"
        )


def _make_lists(off: I64, values: I64 | U64) -> Any:
    return pa.ListArray.from_arrays(off.astype(np.int32), pa.array(values.view(np.int64)))


def _read_lists(table: Any, name: str) -> tuple[I64, I64]:
    """Returns a column of lists as a ragged one."""
    column = table[name].combine_chunks()
    size = column.value_lengths().to_numpy(zero_copy_only=False)
    off = np.zeros(len(size) + 1, np.int64)
    np.cumsum(size, out=off[1:])
    return off, column.flatten().to_numpy().astype(np.int64)


def _drop(off: I64, values: Any, kept: Any) -> tuple[I64, I32]:
    """Keeps some values of a ragged column."""
    out = np.zeros(len(off), np.int64)
    np.cumsum(kept, out=(total := np.zeros(len(values) + 1, np.int64))[1:])
    out[:] = total[off]
    return out, values[kept].astype(np.int32)
