"""The objects of an archive by hour and cell, and the tables of how many of an hour have each word.

The planner takes the frequencies of words from these tables (ArchiveTerms), so that it reads and
splits the texts of compacted objects once instead of twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ps2stream.archive.columns import SCHEMA
from ps2stream.archive.layout import COMPACTED, ArchiveSnapshot
from ps2stream.archive.reading import read_files
from ps2stream.archive.withdrawn import WithdrawnObjects, read_archive
from ps2stream.language.analyzer import TOP, Analysis, Analyzer
from ps2stream.planner import counting
from ps2stream.planner.counting import ragged
from ps2stream.planner.executors import analyzer_of
from ps2stream.planner.objects import BATCH, OBJECTS, pack_archived
from ps2stream.posts.members import AttributeChoice
from ps2stream.protocol.frame import I64, U64, row_of
from ps2stream.space.grid import Grid

HOUR_MS = 3_600_000
PLACED = pa.schema([*SCHEMA, ("hour", pa.int64()), ("cell", pa.int64())])
"""Objects with the hour in which they were archived, since 1970, and their cell of the base
level."""
TEXTS = ("archived", "text")
"""Columns from which words are counted by hour."""
HOUR_TERMS = pa.schema(
    [
        ("hour", pa.int64()),
        ("term", pa.string()),  # a word; empty: of all objects of the hour
        ("objects", pa.int64()),
    ]
)
_MOST_WORDS = 1 << 20


def place_objects(grid: Grid, parts: Iterator[Any]) -> Iterator[Any]:
    """Yields PLACED of batches of columns.SCHEMA. For Spark's executors."""
    for part in parts:
        lon, lat = part.column("lon").to_numpy(), part.column("lat").to_numpy()
        hour, cell = _find_hours(part), grid.cells(lon, lat, 0).astype(np.int64)
        arrays = [part.column(field.name).cast(field.type) for field in SCHEMA]
        columns = [*arrays, pa.array(hour, pa.int64()), pa.array(cell)]
        yield pa.RecordBatch.from_arrays(columns, schema=PLACED)


def count_hour_terms(analysis: Analysis, parts: Iterator[Any]) -> Iterator[Any]:
    """Yields HOUR_TERMS of batches with the columns archived and text, each counted by itself. For
    Spark's executors."""
    counter = _counter_of(analysis)
    for part in parts:
        yield from counter.count(part, _find_hours(part)).to_batches()


def _find_hours(part: Any) -> I64:
    """Returns the hour of each object."""
    found: I64 = part.column("archived").to_numpy() // HOUR_MS
    return found


class HourTermCounter:
    """Counter of words by hour. It remembers the words that it has met, so that only texts
    with others are split in Python."""

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._words: dict[int, str] = {int(TOP): ""}  # by hash

    def count(self, part: Any, hour: I64) -> Any:
        """Returns HOUR_TERMS of a batch with a column text, whose objects are of these hours."""
        off, term = self._analyzer.analyse(*ragged(part.column("text")))
        row = row_of(off)
        distinct, first = np.unique(term, return_index=True)
        words = self._find_words(part.column("text"), distinct, row[first])
        table = pa.table({"hour": hour[row], "at": np.searchsorted(distinct, term)})
        found = table.group_by(["hour", "at"]).aggregate([([], "count_all")])
        names = pa.array(words, pa.string()).take(found["at"])
        columns = [found["hour"], names, found["count_all"]]
        return pa.table(columns, schema=HOUR_TERMS).filter(pc.is_valid(names))

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
def _counter_of(analysis: Analysis) -> HourTermCounter:
    return HourTermCounter(analyzer_of(analysis))


def describe_analysis(analysis: Analysis) -> str:
    """Returns the settings of an analysis that decide which words a text has, as JSON."""
    settings = {name: value for name, value in analysis.to_dict().items() if name != "salt"}
    return json.dumps(settings, sort_keys=True)


class ArchiveTerms(NamedTuple):
    """The files of an archive by how the words of their objects are counted. tables: of HOUR_TERMS;
    counted: objects whose words are all in these; others: objects whose words are not."""

    tables: list[Path]
    counted: list[Path]
    others: list[Path]

    @classmethod
    def of(
        cls, snapshot: ArchiveSnapshot, withdrawn: WithdrawnObjects, analysis: Analysis
    ) -> ArchiveTerms:
        """Divides them. The tables of an hour are taken if they were made by this analysis, and if
        none of the hour's objects was withdrawn since. Raises InvalidArgument."""
        manifest, folder = snapshot.manifest, snapshot.path / COMPACTED
        settings = describe_analysis(analysis)
        objects = [f for f in manifest.files if f.kind == "objects"]
        tables = [f for f in manifest.files if f.kind == "terms"]
        hours = {f.hour for f in tables}
        hours -= {f.hour for f in tables if manifest.analyses.get(f.path) != settings}
        hours -= {f.hour for f in objects if f.hour in hours and withdrawn.touches(folder / f.path)}
        return cls(
            [folder / f.path for f in tables if f.hour in hours],
            [folder / f.path for f in objects if f.hour in hours],
            [folder / f.path for f in objects if f.hour not in hours]
            + [path for _, path in snapshot.raw],
        )


def count_archive(path: str, analysis: Analysis, choice: AttributeChoice) -> Iterator[Any]:
    """Yields counting.TERMS of parts of an archive. Raises InvalidArgument."""
    snapshot, withdrawn = read_archive(path)
    found, analyzer = ArchiveTerms.of(snapshot, withdrawn, analysis), analyzer_of(analysis)
    for part in read_files(found.tables, None, counting.TERMS.names, BATCH):
        rows = pa.Table.from_batches([part]).cast(counting.TERMS)
        yield rows.filter(pc.not_equal(rows["term"], ""))
    bare = [name for name in OBJECTS.names if name != "text"]
    for part in read_files(found.counted, None, bare, BATCH):
        part = part.append_column("text", pa.array([""] * part.num_rows, pa.string()))
        yield counting.object_terms(pack_archived(part, choice), analyzer)
    for part in read_files(found.others, withdrawn, OBJECTS.names, BATCH):
        yield counting.object_terms(pack_archived(part, choice), analyzer)
