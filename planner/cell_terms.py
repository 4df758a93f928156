"""The objects of an archive by hour and cell, and how many of them have each word."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ps2stream.archive.columns import SCHEMA
from ps2stream.language.analyzer import TOP, Analysis, Analyzer
from ps2stream.planner.counting import ragged
from ps2stream.planner.executors import analyzer_of
from ps2stream.protocol.frame import I64, U64, row_of
from ps2stream.space.grid import Grid

HOUR_MS = 3_600_000
PLACED = pa.schema([*SCHEMA, ("hour", pa.int64()), ("cell", pa.int64())])
"""Objects with the hour in which they were archived, since 1970, and their cell of the base
level."""
TEXT_PLACES = ("archived", "lon", "lat", "text")
"""Columns from which words are counted by hour and cell."""
CELL_TERMS = pa.schema(
    [
        ("hour", pa.int64()),
        ("cell", pa.int64()),
        ("term", pa.string()),  # a word; empty: of all objects of the cell
        ("objects", pa.int64()),
    ]
)
_MOST_WORDS = 1 << 20


def place_objects(grid: Grid, parts: Iterator[Any]) -> Iterator[Any]:
    """Yields PLACED of batches of columns.SCHEMA. For Spark's executors."""
    for part in parts:
        hour, cell = _find_places(grid, part)
        arrays = [part.column(field.name).cast(field.type) for field in SCHEMA]
        columns = [*arrays, pa.array(hour, pa.int64()), pa.array(cell)]
        yield pa.RecordBatch.from_arrays(columns, schema=PLACED)


def count_cell_terms(grid: Grid, analysis: Analysis, parts: Iterator[Any]) -> Iterator[Any]:
    """Yields CELL_TERMS of batches with the columns archived, lon, lat and text, each counted by
    itself. For Spark's executors."""
    counter = _counter_of(analysis)
    for part in parts:
        yield from counter.count(part, *_find_places(grid, part)).to_batches()


def _find_places(grid: Grid, part: Any) -> tuple[I64, I64]:
    """Returns the hour and the cell of each object."""
    lon, lat = part.column("lon").to_numpy(), part.column("lat").to_numpy()
    hour = part.column("archived").to_numpy() // HOUR_MS
    return hour, grid.cells(lon, lat, 0).astype(np.int64)


class CellTermCounter:
    """Counter of words by hour and cell. It remembers the words that it has met, so that only texts
    with others are split in Python."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._words: dict[int, str] = {int(TOP): ""}  # by hash

    def count(self, part: Any, hour: I64, cell: I64) -> Any:
        """Returns CELL_TERMS of a batch with a column text, whose objects are of this hour and
        cell."""
        off, term = self._analyzer.analyse(*ragged(part.column("text")))
        row = row_of(off)
        distinct, first = np.unique(term, return_index=True)
        words = self._find_words(part.column("text"), distinct, row[first])
        table = pa.table(
            {"hour": hour[row], "cell": cell[row], "at": np.searchsorted(distinct, term)}
        )
        found = table.group_by(["hour", "cell", "at"]).aggregate([([], "count_all")])
        names = pa.array(words, pa.string()).take(found["at"])
        columns = [found["hour"], found["cell"], names, found["count_all"]]
        return pa.table(columns, schema=CELL_TERMS).filter(pc.is_valid(names))

    def _find_words(self, texts: Any, hashes: U64, rows: I64) -> list[str | None]:
        """Returns the words of hashes, each of which row `rows` of the texts has."""
        if len(self._words) > _MOST_WORDS:
            self._words = {int(TOP): ""}
        numbers = hashes.tolist()
        new = [i for i, number in enumerate(numbers) if number not in self._words]
        if new:
            # Tokens do not cross line ends, so the joined text has exactly the tokens of its lines.
            joined = "\n".join(texts.take(pa.array(np.unique(rows[new]))).to_pylist())
            words = self._analyzer.tokens(joined)
            self._words.update(zip(self._analyzer.hash_terms(words).tolist(), words, strict=True))
        return [self._words.get(number) for number in numbers]


@cache
def _counter_of(analysis: Analysis) -> CellTermCounter:
    return CellTermCounter(analyzer_of(analysis))
