"""The index of a worker with all queries, and batches of objects matched against it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ps2stream.errors import InvalidArgument, Violation, invalid
from ps2stream.inprocess.gather_kernels import order_matches
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.batch_tokenizer import GROWTH
from ps2stream.language.expression import compile_column
from ps2stream.language.literals import NO_LITERALS, LiteralView, WatchedLiterals
from ps2stream.language.object_terms import find_terms, list_compared
from ps2stream.language.query_rows import Regions, build_checked_rows, check_rows
from ps2stream.language.single_text import SingleTextAnalyzer
from ps2stream.limits import FOLDED_TEXT_BYTES, LAT_MAX, LON_MAX, VIOLATIONS
from ps2stream.planner import counting
from ps2stream.planner.sample import commonest, summed
from ps2stream.protocol.frame import I64, U8, sealed
from ps2stream.protocol.rows import QueryRows, no_offsets
from ps2stream.routing.plan import built_in_plan
from ps2stream.routing.tags import QueryTagger
from ps2stream.service.objects import ObjectColumns, check_schema, read_record_batch
from ps2stream.space.grid import Grid
from ps2stream.workers.index import ALL_TERMS
from ps2stream.workers.radix.gi2 import RadixGI2

_CHUNK = 1 << 16
"""Queries that are stored together."""


QUERIES = (1 << 31) - 2
"""The most queries that are matched at once."""


_PLAIN_BYTES = FOLDED_TEXT_BYTES // GROWTH
"""No text of so many bytes can be too long."""
_NO_TEXT = sealed(np.zeros(0, np.uint8))
_NO_OPAQUE = no_offsets(), _NO_TEXT


class Pairs(NamedTuple):
    """The matches of a batch of n objects by object, then query. off: int64[n + 1], where those of
    each object begin; query: int64, their queries' rows."""

    off: I64
    query: I64

    def list_objects(self) -> I64:
        """Returns the row of each match's object in the batch, int64."""
        return np.repeat(np.arange(len(self.off) - 1), np.diff(self.off))


class QueryIndex:
    """Holds queries as one worker would hold all of them. Not for several threads."""

    def __init__(
        self,
        ids: pa.Array,
        expressions: tuple[I64, U8],
        regions: Regions,
        analysis: Analysis,
        sample: pa.RecordBatch | None = None,
    ) -> None:
        """Stores n queries: ids string[n], expressions ragged UTF-8, regions n. sample: objects by
        which the rarest words of the queries are chosen; they cost speed if they are unlike the
        stream, never a match. Raises InvalidArgument naming bad fields as `queries[i].field`."""
        if len(ids) > QUERIES:
            raise invalid("queries", f"{len(ids)} are over the limit {QUERIES}")
        self._analyzer = Analyzer(analysis)
        self._schema: pa.Schema | None = None
        self.ids = ids
        rows = self._compile_queries(expressions, regions, self._count_terms(sample))
        self._last = len(rows)
        grid = _choose_grid(rows)
        self._index = RadixGI2(grid, is_lending=True)
        self._single = SingleTextAnalyzer(self._analyzer)
        self._lon, self._lat = np.zeros(1), np.zeros(1)  # of the object of `match_one`
        self._literals = _watch_literals(rows)
        tagger = QueryTagger(built_in_plan(analysis, grid, 1).compile(self._analyzer), grid)
        for first in range(0, len(rows), _CHUNK):
            part = rows.take(np.arange(first, min(first + _CHUNK, len(rows))))
            self._index.insert(part, *tagger.expand(part)[:3])

    def match(self, batch: pa.RecordBatch, first: int = 0) -> Pairs:
        """Returns all pairs of an object of the batch and a query that it satisfies, each once.
        first: the number of its first object, for errors. Raises InvalidArgument naming a bad
        object as `objects[i].field`."""
        if batch.schema is not self._schema and batch.schema != self._schema:
            check_schema(batch.schema)
            self._schema = batch.schema
        return self.match_columns(read_record_batch(batch, 0), first)

    def match_columns(self, columns: ObjectColumns, first: int = 0) -> Pairs:
        """Returns the pairs of these objects, see `match`."""
        if refused := columns.refusals(VIOLATIONS):
            raise InvalidArgument(
                [Violation(f"objects[{first + r.row}].{r.field}", r.description) for r in refused]
            )
        objects = columns.analyse(self._analyzer, literals=self._literals)
        opaque = columns.opaque.off, columns.opaque.data
        values = list_compared(opaque, self._analyzer, self._literals)
        found = self._index.match(
            self._last, objects.lon, objects.lat, objects.term_off, objects.term,
            ALL_TERMS, *values,
        )  # fmt: skip
        off, query = np.zeros(len(columns) + 1, np.int64), np.empty(len(found.row), np.int64)
        order_matches(sealed(found.row), sealed(found.handle), off, query)
        return Pairs(off, query)

    def match_one(self, lon: float, lat: float, text: str) -> I64:
        """Returns the rows of the queries that an object without attributes satisfies, int64,
        ascending. Raises InvalidArgument naming a bad field."""
        try:
            data = text.encode()
        except UnicodeEncodeError as error:
            raise invalid("text", f"expected Unicode text: {error}") from None
        self._lon[0], self._lat[0] = lon, lat
        column = np.frombuffer(data, np.uint8) if data else _NO_TEXT
        if (
            not (-LON_MAX <= lon <= LON_MAX and -LAT_MAX <= lat <= LAT_MAX)
            or len(data) > _PLAIN_BYTES
        ):
            self._check_one(column)
        if len(self._literals.term):
            off, place = np.array((0, len(data))), (self._lon, self._lat)
            terms = find_terms(
                self._analyzer, (off, column), _NO_OPAQUE, self._literals, place=place
            )
        else:
            terms = self._single.analyse(column)
        query = self._index.match(self._last, self._lon, self._lat, *terms).handle - 1
        query.sort()
        return query

    def _check_one(self, text: U8) -> None:
        """Raises InvalidArgument naming a bad field of the object at hand."""
        off = np.array((0, len(text)))
        columns = ObjectColumns(
            np.zeros(2, np.int64), _NO_TEXT, np.zeros(1, np.int64), self._lon, self._lat, off, text
        )
        if refused := columns.refusals():
            raise InvalidArgument([Violation(r.field, r.description) for r in refused])

    def _count_terms(self, sample: pa.RecordBatch | None) -> Frequencies:
        if sample is None or not len(sample):
            return Frequencies.of({}, self._analyzer)
        text = sample.column("text").fill_null("").cast(pa.string())
        part = counting.object_terms(pa.record_batch([text], ["text"]), self._analyzer)
        return Frequencies.of(
            commonest(summed([part], counting.TERMS, ["term"], ("objects",))), self._analyzer
        )

    def _compile_queries(
        self, expressions: tuple[I64, U8], regions: Regions, frequencies: Frequencies
    ) -> QueryRows:
        """Returns the queries as rows whose handles are their numbers, from 1."""
        compiled = compile_column(*expressions, self._analyzer, frequencies)
        ids = counting.ragged(self.ids)
        if problems := check_rows(ids, compiled, regions):
            raise InvalidArgument(
                [Violation(f"queries[{p[0]}].{p[1]}", p[2]) for p in problems[:VIOLATIONS]]
            )
        rows = build_checked_rows(ids, compiled, regions, expressions)
        handle = np.arange(1, len(rows) + 1)
        return rows.replace(lsn=handle, handle=handle, session=np.ones(len(rows), np.int64))


def _choose_grid(rows: QueryRows) -> Grid:
    """Returns the grid for the median sides of the queries' boxes, as the planner chooses it."""
    box = rows.box.reshape(-1, 4)
    wide, high = box[:, 2] - box[:, 0], box[:, 3] - box[:, 1]
    some = (wide < 360.0) | (high < 180.0)
    if not some.any():
        return Grid()
    return Grid.for_queries(float(np.median(wide[some])), float(np.median(high[some])))


def _watch_literals(rows: QueryRows) -> LiteralView:
    found = WatchedLiterals.of(rows)
    return found.view() if len(found.term) else NO_LITERALS
