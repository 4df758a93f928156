"""The tables of planner/statistics.py from a sample, by NumPy in one process.

The twin of planner/spark.py: equal rows, in any order and in any files, give equal tables.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.limits import PLAN_BYTES
from ps2stream.planner import counting
from ps2stream.planner.hits import ObjectSignatures, UnitHits, UnitNumbers, Vocabulary
from ps2stream.planner.objects import BATCH, OBJECTS
from ps2stream.planner.postings import PostingTable
from ps2stream.planner.rest import (
    MAX_UNITS,
    PAIRS,
    RestTable,
    add_rest,
    count_pairs,
    separate_rest,
)
from ps2stream.planner.sample_rows import (
    OBJECT_ROWS,
    QUERY_ROWS,
    SampleRows,
    check_number,
    object_rows,
    query_rows,
)
from ps2stream.planner.statistics import (
    MAX_SIGNATURES,
    CellTable,
    NumberedSignatures,
    NumberedUnits,
    Statistics,
    limit_signatures,
)
from ps2stream.planner.updates import UPDATES, standing
from ps2stream.posts.post import bad
from ps2stream.protocol.frame import F64, I64
from ps2stream.space.grid import Grid

MAX_FREQUENCIES = 100_000
"""Commonest words, attributes and values of a sample, whose frequencies a plan keeps; all others
are rarer."""
FREQUENCY_BYTES = PLAN_BYTES // 2
"""Bytes of JSON that these may take in a plan, beside its leaves: each value of an attribute may be
another one of hundreds of letters, as addresses are."""
COUNTS = ("live", "inserts", "deletes")


@dataclasses.dataclass(frozen=True, eq=False)
class PlannerSample:
    """Statistics, and the frequencies by which its posting sets were chosen.

    objects, live, inserts, deletes: rows of the sample; live queries are those at its end.
    coarse: the live queries that are stored on coarser levels of the grid, which no plan places:
    a hash spreads them over all workers. collected: the rows that Spark sent to the driver, by
    table. rest: how many units are summed by cell (planner/rest.py). refinement: which grids were
    tried, and what was found (planner/refinement.py); empty if the grid was given.
    """

    stats: Statistics
    frequencies: dict[str, int]
    objects: int
    live: int
    inserts: int
    deletes: int
    coarse: int
    rest: int = 0
    collected: Mapping[str, int] = dataclasses.field(default_factory=dict)
    refinement: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def posts(
    lon: F64,
    lat: F64,
    text: list[str],
    time: I64 | None = None,
    attributes: list[bytes] | None = None,
) -> Any:
    """Returns objects as an Arrow batch of OBJECTS. lon, lat float64[n] degrees, valid; time
    int64[n], Unix ms; attributes: messages, empty for none."""
    n = len(lon)
    times = pa.nulls(n, pa.int64()) if time is None else pa.array(time, pa.int64())
    columns = [pa.nulls(n, pa.string()), times, pa.array(lon), pa.array(lat)]
    held = pa.array([None] * n if attributes is None else attributes, pa.large_binary())
    return pa.record_batch([*columns, pa.array(text, pa.string()), held], OBJECTS)


def take(
    objects: Callable[[], Iterable[Any]],
    updates: Iterable[Any],
    analysis: Analysis,
    grid: Grid | None = None,
    progress: Callable[[str], None] = lambda what: None,
    rows: bool = False,
    max_units: int = MAX_UNITS,
    max_signatures: int = MAX_SIGNATURES,
    terms: Callable[[], Iterable[Any]] | None = None,
) -> PlannerSample:
    """Samples `objects()` (batches of objects.OBJECTS; iterated twice) and `updates` (batches of
    updates.UPDATES). grid: by default the one for the queries' median box. rows: whether the
    sample is also kept row by row; else at most max_units units are held one by one.
    max_signatures: kept in all, or one per cell. terms: yields counting.TERMS of all objects, by
    default as they are counted here.

    Raises InvalidArgument if there are no objects, and for a wrong expression; PlanError for more
    rows than are kept.
    """
    analyzer = Analyzer(analysis)
    progress("counting the terms of the objects")
    found = (counting.object_terms(batch, analyzer) for batch in objects())
    parts = list(found if terms is None else terms())
    frequencies = commonest(summed(parts, counting.TERMS, ["term"], ("objects",)))
    progress("posting the queries")
    queries = standing(pa.Table.from_batches(updates, UPDATES))
    grid = grid or counting.grid_of(counting.sides(queries))
    known = Frequencies.of(frequencies, analyzer)
    parts = [
        counting.postings(queries.slice(at, BATCH), analyzer, known, grid)
        for at in range(0, len(queries), BATCH)
    ]
    postings = ordered(summed(parts, counting.POSTINGS, ["cell", "term"], COUNTS))
    progress("counting the objects of each cell and term")
    known_words, rest = None, None
    if not rows and len(postings) > max_units:
        known_words = Vocabulary.of(postings.terms, analyzer)
        parts = [count_pairs(batch, analyzer, grid, known_words) for batch in objects()]
        pairs = summed(parts, PAIRS, ["cell", "hash"], ("objects",))
        postings, rest = separate_rest(postings, pairs, known_words, analyzer, max_units)
    units = units_of(postings, analyzer)
    hits, kept = UnitHits(units, analyzer, grid, known_words), []
    for batch in objects():
        hits.add(batch)
        kept += [object_rows(batch, analyzer, grid, units.literals)] if rows else []
    counts = {name: int(queries[name].to_numpy().sum()) for name in COUNTS}
    cell = np.flatnonzero(hits.cells)
    cells = CellTable(cell, hits.cells[cell].astype(np.float64))
    least = hits.signatures().smallest(limit_signatures(cells.objects, max_signatures))
    counted = UnitCounts(postings, cells, hits.units, least, rest)
    sample = build_sample(grid, frequencies, counts, counted)
    if not rows:
        return sample
    asked = [
        query_rows(queries.slice(at, BATCH), analyzer, known, grid)
        for at in range(0, len(queries), BATCH)
    ]
    tables = (pa.concat_tables([OBJECT_ROWS.empty_table(), *kept]),
              pa.concat_tables([QUERY_ROWS.empty_table(), *asked]))  # fmt: skip
    return with_rows(sample, *tables, analyzer)


def with_rows(
    sample: PlannerSample, objects: Any, queries: Any, analyzer: Analyzer
) -> PlannerSample:
    """Returns the sample with its rows, tables of OBJECT_ROWS and QUERY_ROWS. Raises PlanError for
    more than are kept."""
    check_number("objects", len(objects))
    check_number("queries", len(queries))
    rows = SampleRows.of(objects, queries, sample.stats.terms, analyzer)
    return dataclasses.replace(sample, stats=dataclasses.replace(sample.stats, rows=rows))


def commonest(terms: Any) -> dict[str, int]:
    """Returns the frequencies of a table of TERMS, by count and string: at most MAX_FREQUENCIES,
    and no more than FREQUENCY_BYTES."""
    ordered = terms.sort_by([("objects", "descending"), ("term", "ascending")])
    kept = ordered.slice(0, MAX_FREQUENCIES)
    names, counts = kept["term"].to_pylist(), kept["objects"].to_pylist()
    sizes = [
        len(json.dumps(name)) + len(str(count)) + 2
        for name, count in zip(names, counts, strict=True)
    ]
    fitting = int(np.searchsorted(np.cumsum(sizes), FREQUENCY_BYTES, "right"))
    return dict(zip(names[:fitting], counts[:fitting], strict=True))


class UnitCounts(NamedTuple):
    """Summed tables: postings by cell and term, as `ordered` returns them; objects int64[u], of
    their units; signatures by unit number, no more than are kept. rest: the units that are not
    among these."""

    postings: PostingTable
    cells: CellTable
    objects: I64
    signatures: ObjectSignatures
    rest: RestTable | None = None


def build_sample(
    grid: Grid, frequencies: dict[str, int], counts: dict[str, int], tables: UnitCounts
) -> PlannerSample:
    """Builds the sample from summed tables and counts of COUNTS. Raises InvalidArgument without
    objects."""
    postings, cells, unit_objects, signatures, rest = tables
    if not len(cells.cell):
        raise bad("--objects", "the sample has no objects")
    columns = (unit_objects, *(getattr(postings, name) for name in COUNTS))
    table = NumberedUnits(postings.terms, postings.cell, postings.term, *columns)
    rows = NumberedSignatures(signatures.cell, signatures.unit_off, signatures.unit)
    if rest is not None:
        table, rows = add_rest(table, signatures, rest)
    return PlannerSample(
        stats=Statistics.number(grid, cells, table, rows),
        frequencies=frequencies,
        objects=int(cells.objects.sum()),
        coarse=postings.coarse,
        live=counts["live"],
        inserts=counts["inserts"],
        deletes=counts["deletes"],
        rest=0 if rest is None else int(rest.sums["units"].to_numpy().sum()),
    )


def ordered(postings: Any) -> PostingTable:
    """Returns a table of POSTINGS by cell and term; this order numbers the units."""
    return PostingTable.of_strings(postings)


def units_of(postings: PostingTable, analyzer: Analyzer) -> UnitNumbers:
    """Returns the units of these postings, to be found by their numbers."""
    return UnitNumbers(postings.cell, postings.term, postings.terms, analyzer)


def summed(parts: list[Any], schema: Any, keys: list[str], values: tuple[str, ...]) -> Any:
    """Returns the sums of `values` by `keys` over several tables of a schema."""
    table = pa.concat_tables([schema.empty_table(), *parts])
    found = table.group_by(keys).aggregate([(name, "sum") for name in values])
    return found.rename_columns([n.removesuffix("_sum") for n in found.column_names]).select(
        schema.names
    )
