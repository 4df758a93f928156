"""The objects of an archive by hour and cell, and how many of them have each word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ps2stream.archive.columns import SCHEMA
from ps2stream.language.analyzer import TOP, Analysis, Analyzer
from ps2stream.planner.counting import find, ragged
from ps2stream.planner.executors import analyzer_of
from ps2stream.protocol.frame import row_of
from ps2stream.space.grid import Grid

HOUR_MS = 3_600_000
PLACED = pa.schema([*SCHEMA, ("hour", pa.int64()), ("cell", pa.int64())])
"""Objects with the hour in which they were archived, since 1970, and their cell of the base
level."""
CELL_TERMS = pa.schema(
    [
        ("hour", pa.int64()),
        ("cell", pa.int64()),
        ("term", pa.string()),  # a word; empty: of all objects of the cell
        ("objects", pa.int64()),
    ]
)


def place_objects(grid: Grid, parts: Iterator[Any]) -> Iterator[Any]:
    """Yields PLACED of batches of columns.SCHEMA. For Spark's executors."""
    for part in parts:
        lon, lat = part.column("lon").to_numpy(), part.column("lat").to_numpy()
        hour = part.column("archived").to_numpy() // HOUR_MS
        cell = grid.cells(lon, lat, 0).astype(np.int64)
        arrays = [part.column(field.name).cast(field.type) for field in SCHEMA]
        columns = [*arrays, pa.array(hour, pa.int64()), pa.array(cell)]
        yield pa.RecordBatch.from_arrays(columns, schema=PLACED)


def count_cell_terms(analysis: Analysis, parts: Iterator[Any]) -> Iterator[Any]:
    """Yields CELL_TERMS of batches of PLACED, each counted by itself. For Spark's executors."""
    for part in parts:
        yield from sum_cell_terms(part, analyzer_of(analysis)).to_batches()


def sum_cell_terms(part: Any, analyzer: Analyzer) -> Any:
    """Returns CELL_TERMS of a batch with the columns hour, cell and text."""
    off, term = analyzer.analyse(*ragged(part.column("text")))
    row = row_of(off)
    table = pa.table(
        {
            "hour": part.column("hour").to_numpy()[row],
            "cell": part.column("cell").to_numpy()[row],
            "hash": term,
        }
    )
    found = table.group_by(["hour", "cell", "hash"]).aggregate([([], "count_all")])
    # Tokens do not cross line ends, so the joined text has exactly the tokens of its lines.
    words = ["", *analyzer.tokens("\n".join(part.column("text").to_pylist()))]
    hashes = np.concatenate([np.array([TOP], np.uint64), analyzer.hash_terms(words[1:])])
    order = np.argsort(hashes)
    at, held = find(hashes[order], found["hash"].to_numpy())
    names = np.array(words, object)[order[at]]
    columns = [found["hour"], found["cell"], pa.array(names, pa.string()), found["count_all"]]
    return pa.table(columns, schema=CELL_TERMS).filter(pa.array(held))
