"""Matches as a table that notebooks show, and libraries of data frames read as Arrow."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import pyarrow as pa

from ps2stream.errors import FailedPrecondition
from ps2stream.extras import name_missing_extra
from ps2stream.protocol.frame import I64, U32

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
    object_id, as is any whose name is taken. `table` is the Arrow table; pyarrow, Polars
    and others read a MatchTable as one.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return f"<{len(self):,} matches of {self.count_queries():,} queries>"

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)

    def count_queries(self) -> int:
        """Returns the number of queries that matched."""
        return len(self.table.column("query").unique())

    def to_pandas(self) -> Any:
        """Returns the table as a data frame of pandas."""
        return self.table.to_pandas()

    def _repr_html_(self) -> str:
        shown = self.table.slice(0, SHOWN)
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
        shown = self.table.slice(0, most).select(["lon", "lat", "query_id", "text"])
        drawn = folium.Map()
        for lon, lat, query, text in zip(*(c.to_pylist() for c in shown.columns), strict=True):
            # Texts come from strangers: what is markup in them must not become any.
            words = folium.Tooltip(f"<b>{escape(query)}</b> {escape(text or '')}")
            folium.CircleMarker((lat, lon), radius=4, tooltip=words).add_to(drawn)
        lon, lat = (shown.column(name).to_numpy() for name in ("lon", "lat"))
        drawn.fit_bounds([(lat.min(), lon.min()), (lat.max(), lon.max())])
        return drawn


def build_matches(
    ids: pa.Array, batch: pa.RecordBatch, first: int, objects: U32, queries: I64
) -> pa.RecordBatch:
    """Returns the pairs of a batch with the columns of MatchTable. ids: of all queries; first: the
    number of the batch's first object."""
    found = batch.take(pa.array(objects))
    columns = {
        "query": pa.array(queries),
        "query_id": ids.take(pa.array(queries)),
        "object": pa.array(objects.astype(np.int64) + first),
    }
    for name, column in zip(found.schema.names, found.columns, strict=True):
        while name == "id" or name in columns:
            name = f"object_{name}"
        columns[name] = column
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _format_cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return escape(text if len(text) <= CELL else text[: CELL - 1] + "…")
