"""The functions that Spark's executors run: Arrow batches in, Arrow batches out.

Each function takes the batches of one partition. A refused row ends the job: its InvalidArgument
travels as text in the error that Spark passes on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, wraps
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ps2stream.errors import InvalidArgument, Violation
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.expression import is_watched
from ps2stream.planner import counting, rest, updates
from ps2stream.planner.hits import UnitHits, UnitNumbers, Vocabulary
from ps2stream.planner.objects import pack_archived, pack_columns, pack_rows
from ps2stream.planner.sample import COUNTS, summed
from ps2stream.planner.sample_rows import object_rows, query_rows
from ps2stream.posts.arrow_columns import SCHEMA, post_column
from ps2stream.posts.attribute_columns import convert_columns
from ps2stream.posts.members import AttributeChoice
from ps2stream.posts.post import bad, check_records
from ps2stream.posts.readers import Format, json_record, make_rows, read_cells
from ps2stream.routing.plan import hash_units
from ps2stream.space.grid import Grid

HITS = pa.schema(
    [
        ("cell", pa.int64()),  # of a count of objects; with hash and units: of a signature
        ("unit", pa.int64()),  # of a count of objects, by its number
        ("objects", pa.int64()),
        ("hash", pa.int64()),
        ("units", pa.list_(pa.int64())),
    ]
)
KEYED = pa.schema([*counting.POSTINGS, ("hash", pa.int64())])
"""Postings with the hash of the term, as objects have it."""
CLASSED = pa.schema([*KEYED, ("objects", pa.int64()), ("class", pa.int64())])
"""Units with the objects that have their terms, and the class of what they weigh."""
TERM = pa.schema([("term", pa.string())])
WORDS = pa.schema([("cell", pa.int64()), ("word", pa.int64()), ("hash", pa.int64())])
"""Words of a vocabulary that an object of a cell has: its number there, and its hash."""
Batches = Iterator[Any]
_ROWS = 1 << 20  # rows held before they are summed again; if hardly fewer, they are passed on
_REFUSED = re.compile(r"<refused>(\[.*?\])</refused>", re.DOTALL)

analyzer_of = cache(Analyzer)


def _encode_refusals(function: Callable[..., Batches]) -> Callable[..., Batches]:
    """Makes a function raise InvalidArgument as a ValueError that `refused` can read."""

    @wraps(function)
    def run(*args: Any) -> Batches:
        try:
            yield from function(*args)
        except InvalidArgument as error:
            text = json.dumps([list(v) for v in error.violations])
            raise ValueError(f"<refused>{text}</refused>") from None

    return run


def refused(text: str) -> InvalidArgument | None:
    """Returns the InvalidArgument that an executor's error text carries, if any."""
    found = _REFUSED.search(text)
    if found is None:
        return None
    return InvalidArgument([Violation(*pair) for pair in json.loads(found[1])])


class ObjectSource(NamedTuple):
    """A file or an archive of objects. columns: the file's column for each of ours, more: the type
    of each column that is an attribute (both of Parquet); attributes: the choice of these, as
    PlanJob has it."""

    kind: Format
    path: str
    columns: dict[str, str]
    more: dict[str, str]
    attributes: str | None = None


@_encode_refusals
def read_objects(source: ObjectSource, parts: Batches) -> Batches:
    """Yields objects.OBJECTS without ids."""
    kind, path, columns, more, spec = source
    choice, row = AttributeChoice(spec), 0
    for part in parts:
        if kind == "archive":
            yield pack_archived(part, choice)
        elif kind == "parquet":
            where = f"{path} (a partition)"
            found = {n: post_column(where, n, columns, part, row) for n in SCHEMA.names[1:]}
            found["id"] = pa.nulls(len(part), pa.string())
            found |= convert_columns(where, more, part, row, choice)
            yield pack_columns(pa.RecordBatch.from_pydict(found))
        else:
            records = _read_records(kind, path, part, row)
            if kind == "csv":
                records = [(where, read_cells(where, record)) for where, record in records]
            posts = make_rows(check_records(records, 0, "", choice))
            yield pack_rows([post | {"id": None} for post in posts])
        row += len(part)


@_encode_refusals
def read_updates(kind: Format, path: str, parts: Batches) -> Batches:
    """Yields updates.UPDATES."""
    row = 0
    for part in parts:
        yield updates.of_records(_read_records(kind, path, part, row))
        row += len(part)


def _read_records(
    kind: Format, path: str, part: Any, row: int
) -> Iterable[tuple[str, Mapping[str, Any]]]:
    try:
        records = part.to_pylist()
    except UnicodeDecodeError as error:
        raise bad(f"{path} (a partition)", f"expected UTF-8: {error}") from None
    for number, record in enumerate(records, row):
        where = f"{path} (a partition) row {number}"
        if kind != "jsonl":
            yield where, record
        elif record["value"].strip():
            yield where, json_record(f"{path} {record['value'][:60]!r}", record["value"])


@_encode_refusals
def count_terms(analysis: Analysis, parts: Batches) -> Batches:
    """Yields counting.TERMS of objects."""
    tables = (counting.object_terms(part, analyzer_of(analysis)) for part in parts)
    return _sum_tables(tables, counting.TERMS, ["term"], ("objects",))


@_encode_refusals
def count_sides(parts: Batches) -> Batches:
    """Yields counting.SIDES of queries."""
    for part in parts:
        yield from counting.sides(part).to_batches()


@_encode_refusals
def count_postings(analysis: Analysis, frequencies: Any, grid: Grid, parts: Batches) -> Batches:
    """Yields counting.POSTINGS of queries. frequencies: a broadcast of counts by term."""
    analyzer = analyzer_of(analysis)
    known = Frequencies.of(frequencies.value, analyzer)
    tables = (counting.postings(part, analyzer, known, grid) for part in parts)
    return _sum_tables(tables, counting.POSTINGS, ["cell", "term"], COUNTS)


@_encode_refusals
def count_hits(
    analysis: Analysis, units: Any, grid: Grid, vocabulary: Any, parts: Batches
) -> Batches:
    """Yields HITS of objects. units: a broadcast of UnitNumbers; vocabulary: None, or one of the
    Vocabulary of more units than these."""
    known: UnitNumbers = units.value
    words: Vocabulary | None = None if vocabulary is None else vocabulary.value
    hits = UnitHits(known, analyzer_of(analysis), grid, words)
    for part in parts:
        hits.add(part)
    for name, counts in (("cell", hits.cells), ("unit", hits.units)):
        number = np.flatnonzero(counts)
        yield _fill_hits(len(number), **{name: number, "objects": counts[number]})
    found = hits.signatures()
    lists = pa.ListArray.from_arrays(found.unit_off.astype(np.int32), found.unit)
    yield _fill_hits(len(found.cell), cell=found.cell, hash=found.hash, units=lists)


def hash_postings(analysis: Analysis, parts: Batches) -> Batches:
    """Yields KEYED of counting.POSTINGS."""
    for part in parts:
        names = part.column("term").dictionary_encode()
        hashes = hash_units(analyzer_of(analysis), names.dictionary.to_pylist()).view(np.int64)
        column = pa.array(hashes).take(names.indices)
        yield pa.record_batch([*part.columns, column], schema=KEYED)


def list_literals(analysis: Analysis, parts: Batches) -> Batches:
    """Yields of a column of terms those that are no words."""
    for part in parts:
        names = part.column("term").to_pylist()
        kept = [name for name in names if is_watched(name, analyzer_of(analysis))]
        yield pa.record_batch([pa.array(kept, pa.string())], schema=TERM)


@_encode_refusals
def count_pairs(analysis: Analysis, vocabulary: Any, grid: Grid, parts: Batches) -> Batches:
    """Yields rest.PAIRS of objects. vocabulary: a broadcast of a Vocabulary."""
    known: Vocabulary = vocabulary.value
    tables = (rest.count_pairs(part, analyzer_of(analysis), grid, known) for part in parts)
    return _sum_tables(tables, rest.PAIRS, ["cell", "hash"], ("objects",))


def classify_units(parts: Batches) -> Batches:
    """Yields CLASSED of KEYED with a column of objects."""
    for part in parts:
        columns = (part.column(name).to_numpy() for name in ("objects", *COUNTS))
        found = pa.array(rest.classify_units(*columns))
        yield pa.record_batch([*part.select(CLASSED.names[:-1]).columns, found], schema=CLASSED)


def hash_words(vocabulary: Any, parts: Batches) -> Batches:
    """Yields WORDS of their columns cell and word. vocabulary: a broadcast of a Vocabulary."""
    known: Vocabulary = vocabulary.value
    for part in parts:
        hashes = known.words[part.column("word").to_numpy()].view(np.int64)
        yield pa.record_batch([*part.select(["cell", "word"]).columns, pa.array(hashes)], WORDS)


@_encode_refusals
def list_objects(analysis: Analysis, units: Any, grid: Grid, parts: Batches) -> Batches:
    """Yields sample_rows.OBJECT_ROWS of objects. units: a broadcast of Units."""
    known: UnitNumbers = units.value
    for part in parts:
        yield from object_rows(part, analyzer_of(analysis), grid, known.literals).to_batches()


@_encode_refusals
def list_queries(analysis: Analysis, frequencies: Any, grid: Grid, parts: Batches) -> Batches:
    """Yields sample_rows.QUERY_ROWS of queries. frequencies: a broadcast of counts by term."""
    analyzer = analyzer_of(analysis)
    known = Frequencies.of(frequencies.value, analyzer)
    for part in parts:
        yield from query_rows(part, analyzer, known, grid).to_batches()


def _fill_hits(n: int, **columns: Any) -> Any:
    """Returns a batch of HITS in which the columns that are not given are null."""
    arrays = [
        pa.array(columns[field.name]) if field.name in columns else pa.nulls(n, field.type)
        for field in HITS
    ]
    return pa.record_batch([pc.cast(a, k) for a, k in zip(arrays, HITS.types, strict=True)], HITS)


def _sum_tables(
    tables: Iterable[Any], schema: Any, keys: list[str], values: tuple[str, ...]
) -> Batches:
    """Sums tables by their keys, a limited number of rows at a time."""
    held: list[Any] = []
    for table in tables:
        held.append(table)
        if sum(map(len, held)) > _ROWS:
            held = [summed(held, schema, keys, values)]
            if len(held[0]) > _ROWS // 2:
                yield from held.pop().to_batches()
    yield from summed(held, schema, keys, values).to_batches()
