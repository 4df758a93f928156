"""Matches as a table that notebooks show, and libraries of data frames read as Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
import pyarrow as pa

from ps2stream.client.frames import write_values
from ps2stream.errors import FailedPrecondition, invalid, short
from ps2stream.extras import name_missing_extra
from ps2stream.inprocess.match_columns import (
    PAIRS,
    MatchedBatch,
    QueryIds,
    build_columns,
    name_columns,
)

SHOWN = 10
"""Matches that a notebook shows."""
CELL = 80
"""Letters of a value that it shows."""
MAPPED = 2_000
"""Matches that are drawn on a map."""


class MatchTable:
    """The pairs of objects and queries that match, by object, then query.

    Columns: query int64, the row of the query among the queries, and query_id; object int64, the
    row of the object among all objects; then all columns of the object, of which id is named
    object_id, as is any whose name is taken. `table` is the Arrow table, which is made when it is
    first needed; `select` makes some columns of it. An attribute whose values are of several types
    is a column of strings, as JSON has them. pyarrow, Polars and others read a MatchTable as
    a table.
    """

    def __init__(self, ids: QueryIds, batches: Sequence[MatchedBatch]) -> None:
        """Stores the matches of at least one batch, and the ids of all queries."""
        self._ids, self._batches = ids, batches

    @cached_property
    def table(self) -> pa.Table:
        """The table of Arrow, with all columns."""
        return self.select(None)

    @property
    def column_names(self) -> list[str]:
        """The names of the columns of the table."""
        names = (name_columns(found.batch.schema) for found in self._batches)
        return [*PAIRS, *dict.fromkeys(name for each in names for name in each)]

    def select(self, columns: Sequence[str] | None) -> pa.Table:
        """Returns a table of Arrow with these columns, or all of them. Raises InvalidArgument for a
        column that is not there."""
        known = self.column_names
        if unknown := [name for name in columns or () if name not in known]:
            raise invalid("columns", f"expected {', '.join(known)}; got {short(unknown[0])}")
        wanted = None if columns is None else {"query", *columns}  # a table has its length by one
        some = [found for found in self._batches if len(found)] or self._batches[:1]
        parts = [part for found in some for part in build_columns(found, self._ids, wanted)]
        joined = _join_batches(parts)
        return joined if columns is None else joined.select(list(columns))

    def list_batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the matches with all columns, of which an attribute whose values are of several
        types is a union."""
        for found in self._batches:
            yield from build_columns(found, self._ids)

    def head(self, matches: int) -> pa.Table:
        """Returns a table of Arrow with the first matches, at most so many."""
        taken, left = list[MatchedBatch](), matches
        for found in self._batches:
            taken.append(found.take_matches(0, min(left, len(found))))
            left -= len(taken[-1])
            if left <= 0:
                break
        return MatchTable(self._ids, taken).table

    def __len__(self) -> int:
        return sum(map(len, self._batches))

    def __repr__(self) -> str:
        return f"<{len(self):,} matches of {self.count_queries():,} queries>"

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)

    def count_queries(self) -> int:
        """Returns the number of queries that matched."""
        return len(np.unique(np.concatenate([found.pairs.query for found in self._batches])))

    def to_pandas(self) -> Any:
        """Returns the table as a data frame of pandas."""
        return self.table.to_pandas()

    def _repr_html_(self) -> str:
        shown = self.head(SHOWN)
        head = "".join(f"<th>{escape(name)}</th>" for name in shown.schema.names)
        rows = "".join(
            f"<tr>{''.join(f'<td>{_format_cell(value)}</td>' for value in record.values())}</tr>"
            for record in shown.to_pylist()
        )
        more = f", of which {len(shown)} are shown" if len(shown) < len(self) else ""
        return (
            f"<p>{len(self):,} matches of {self.count_queries():,} queries{more}</p>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        )

    def map(self, most: int = MAPPED) -> Any:
        """Returns a map of the first `most` matches, a folium.Map, which notebooks draw. Needs
        folium (the extra notebook); its page loads Leaflet and tiles of OpenStreetMap from the
        internet. Raises FailedPrecondition where folium is not installed, or nothing matched."""
        with name_missing_extra("MatchTable.map"):
            import folium
        if not len(self):
            raise FailedPrecondition("there is no match to draw")
        shown = self.head(most).select(["lon", "lat", "query_id", "text"])
        drawn = folium.Map()
        for lon, lat, query, text in zip(*(c.to_pylist() for c in shown.columns), strict=True):
            # Texts come from strangers: what is markup in them must not become any.
            words = folium.Tooltip(f"<b>{escape(query)}</b> {escape(text or '')}")
            folium.CircleMarker((lat, lon), radius=4, tooltip=words).add_to(drawn)
        lon, lat = (shown.column(name).to_numpy() for name in ("lon", "lat"))
        drawn.fit_bounds([(lat.min(), lon.min()), (lat.max(), lon.max())])
        return drawn


def _join_batches(parts: Sequence[pa.RecordBatch]) -> pa.Table:
    """Returns one table. A column whose values are of several types has texts, as JSON has them."""
    kinds: dict[str, set[pa.DataType]] = {}
    for part in parts:
        for column in part.schema:
            kinds.setdefault(column.name, set()).add(column.type)
    mixed = {name for name, own in kinds.items() if not _is_one_type(own)}
    tables = []
    for part in parts:
        columns = {
            name: write_values(column.to_pylist()) if name in mixed else column
            for name, column in zip(part.schema.names, part.columns, strict=True)
        }
        tables.append(pa.table(columns))
    return pa.concat_tables(tables, promote_options="permissive")


def _is_one_type(kinds: Iterable[pa.DataType]) -> bool:
    """Returns whether columns of these types can be joined, none of which is a union."""
    if any(map(pa.types.is_union, kinds)):
        return False
    try:
        schemas = [pa.schema([("", kind)]) for kind in kinds]
        pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException:
        return False
    return True


def _format_cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return escape(text if len(text) <= CELL else text[: CELL - 1] + "…")
