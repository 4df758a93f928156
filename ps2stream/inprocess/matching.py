"""`ps2stream.match`: queries and objects in, matches out, in this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa

from ps2stream.cluster.warm import is_host_prepared, prepare_host
from ps2stream.errors import invalid, short
from ps2stream.foldings import FOLDINGS
from ps2stream.inprocess.match_columns import MatchedBatch, QueryIds, number_objects
from ps2stream.inprocess.match_table import MatchTable
from ps2stream.inprocess.object_batches import are_in_memory, list_batches
from ps2stream.inprocess.processes import count_processes, match_by_processes
from ps2stream.inprocess.query_index import QueryIndex
from ps2stream.inprocess.query_source import read_queries
from ps2stream.language.analyzer import Analysis
from ps2stream.service.objects import check_schema
from ps2stream.workers.indexes import IndexName

log = logging.getLogger("ps2stream.inprocess")
INDEX: IndexName = "gi2-radix"
ALONE = 1 << 18
"""Objects that this process matches itself before it starts others: they take about a second."""


def match(
    queries: Any,
    objects: Any,
    *,
    stemmer: str | None = None,
    stop_words: str | None = None,
    fold: Iterable[str] = (),
    attributes: str | None = None,
    processes: int | None = None,
) -> MatchTable:
    """Matches objects against queries in this process, as a service would, and returns all pairs.

        found = ps2stream.match([("thames", "flood AND river", Circle(-0.1, 51.5, 30))], posts)

    queries: (id, expression[, region]) each, Query objects or mappings; a table (Arrow, pandas,
    Polars) with the columns id, expression and region (JSON) or lon_min, lat_min, lon_max, lat_max;
    a GeoDataFrame, whose geometries are the regions; or the path of such a file (Parquet, JSON
    Lines, CSV). objects: a table with lon, lat (degrees) and text, a GeoDataFrame of points, a list
    of mappings, or paths of files as `ps2stream publish` takes them; all other columns are
    attributes. stemmer, stop_words, fold: the text analysis, as `serve` has it. attributes: of
    files, as `publish` has it. processes: how many match; by default as many as there are cores,
    where there are more than 262,144 objects.

    The time of an object and the ends of queries mean nothing here. The result is held in memory;
    `match_batches` yields it in parts. Raises InvalidArgument naming the field of a bad query or
    object.
    """
    ids, batches = _match_all(
        queries, objects, stemmer, stop_words, fold, attributes, processes, lambda what: None
    )
    # A batch of an iterator may be a part of a table that nobody else keeps.
    is_alone = isinstance(objects, Iterator)
    return MatchTable(ids, [found.drop_unmatched(is_alone) for found in batches])


def match_batches(
    queries: Any,
    objects: Any,
    *,
    stemmer: str | None = None,
    stop_words: str | None = None,
    fold: Iterable[str] = (),
    attributes: str | None = None,
    processes: int | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> Iterator[tuple[MatchTable, int]]:
    """Yields the matches of at most 16,384 objects at a time, and how many objects these were. So
    objects need not fit into memory: they are read as matches are taken. The arguments and errors
    are those of `match`; `progress` is told what happens before the first batch."""
    ids, batches = _match_all(
        queries, objects, stemmer, stop_words, fold, attributes, processes, progress
    )
    for found in batches:
        yield MatchTable(ids, [found]), len(found.batch)


def build_index(
    queries: Any,
    stemmer: str | None,
    stop_words: str | None,
    fold: Iterable[str],
    sample: pa.RecordBatch | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> QueryIndex:
    """Returns an index of queries, which are those of `match`; sample: as QueryIndex takes it."""
    names = tuple(sorted({*fold}))
    if unknown := [name for name in names if name not in FOLDINGS]:
        raise invalid("fold", f"expected {', '.join(FOLDINGS)}, got {short(unknown[0])}")
    try:
        analysis = Analysis(0, stemmer, stop_words, fold=names)
    except ValueError as error:
        raise invalid("stemmer" if stop_words is None else "stop_words", str(error)) from None
    if not is_host_prepared(INDEX):
        progress("compiling kernels, once for an installation")
        log.warning("compiling kernels, once for an installation; it takes a minute or two")
        prepare_host(INDEX)
    progress("reading queries")
    source = read_queries(queries)
    progress(f"indexing {len(source):,} queries")
    return QueryIndex(*source, analysis, sample)


def _match_all(
    queries: Any,
    objects: Any,
    stemmer: str | None,
    stop_words: str | None,
    fold: Iterable[str],
    attributes: str | None,
    processes: int | None,
    progress: Callable[[str], None],
) -> tuple[QueryIds, Iterator[MatchedBatch]]:
    """Returns the ids of the queries, and the batches of objects as they are matched, at least
    one."""
    if processes is not None and processes < 1:
        raise invalid("processes", f"expected 1 or more, got {processes}")
    batches = list_batches(objects, attributes)
    sample = next(batches, _NOTHING)
    check_schema(sample.schema)
    index = build_index(queries, stemmer, stop_words, fold, sample, progress)
    numbered = number_batches(chain([sample], batches))
    return QueryIds(index.ids), match_numbered(index, numbered, processes, are_in_memory(objects))


_NOTHING = pa.RecordBatch.from_arrays(
    [pa.array([], pa.float64()), pa.array([], pa.float64()), pa.array([], pa.string())],
    ["lon", "lat", "text"],
)


def number_batches(
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yields each batch with the number of its first object."""
    first = 0
    for batch in batches:
        yield batch, first
        first += len(batch)


def match_numbered(
    index: QueryIndex,
    numbered: Iterator[tuple[pa.RecordBatch, int]],
    processes: int | None,
    in_memory: bool,
) -> Iterator[MatchedBatch]:
    """Yields batches, which come with the numbers of their first objects, and their matches."""
    several = count_processes() if processes is None else processes
    alone = numbered if several == 1 else _take_objects(numbered, 0 if processes else ALONE)
    for batch, first in alone:
        yield number_objects(batch, first, index.match(batch, first))
    yield from _match_rest(index, numbered, several, in_memory)


def _match_rest(
    index: QueryIndex,
    numbered: Iterator[tuple[pa.RecordBatch, int]],
    several: int,
    in_memory: bool,
) -> Iterator[MatchedBatch]:
    """Yields what is left, if anything is; processes are only started then."""
    if several > 1 and (more := next(numbered, None)) is not None:
        rest = chain([more], numbered)
        yield from match_by_processes(index, list(rest) if in_memory else rest, several)


def _take_objects(
    numbered: Iterator[tuple[pa.RecordBatch, int]], most: int
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yields batches until they have at least so many objects."""
    done = 0
    while done < most and (numbered_batch := next(numbered, None)) is not None:
        yield numbered_batch
        done += len(numbered_batch[0])
