"""The live queries of a service, as the rows that its workers would fetch.

The planner's sample knows only the boxes of queries. Bytes are those of whole queries, so these are
kept as listed, and become rows by the code that the service itself makes them with.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ps2stream.language.analyzer import Analyzer, Frequencies
from ps2stream.language.expression import compile_column
from ps2stream.language.query_rows import build_rows
from ps2stream.planner.counting import ragged
from ps2stream.protocol.rows import QueryRows
from ps2stream.protocol.validity import add_validity
from ps2stream.space.geojson import region_of
from ps2stream.space.regions import World

LIVE = pa.schema(
    [
        ("id", pa.string()),
        ("expression", pa.string()),  # as typed
        ("region", pa.string()),  # JSON; null for the whole world
        ("until", pa.int64()),  # the end, Unix ms; 0 for none
    ]
)


class ListedQuery(NamedTuple):
    """A query as a client lists it. region: in JSON's form, None for the whole world; until: the
    end in Unix ms, 0 for none."""

    id: str
    expression: str
    region: dict[str, Any] | None = None
    until: int = 0


def of_queries(queries: Iterable[ListedQuery]) -> Any:
    """Returns a batch of LIVE."""
    rows = [
        (q.id, q.expression, None if q.region is None else json.dumps(q.region), q.until)
        for q in queries
    ]
    columns: Iterable[Any] = zip(*rows, strict=True) if rows else [()] * len(LIVE)
    kinds = LIVE.types
    return pa.record_batch([pa.array(c, k) for c, k in zip(columns, kinds, strict=True)], LIVE)


def rows_of(batch: Any, analyzer: Analyzer, frequencies: Frequencies) -> QueryRows:
    """Returns the rows of a batch of LIVE, posted by these frequencies. Raises InvalidArgument for
    a query that no service has taken."""
    expressions = ragged(batch.column("expression"))
    compiled = compile_column(*expressions, analyzer, frequencies)
    regions = [
        World() if text is None else region_of(f"query {id_}", json.loads(text))
        for id_, text in zip(*(batch.column(n).to_pylist() for n in ("id", "region")), strict=True)
    ]
    rows = build_rows(ragged(batch.column("id")), compiled, regions, expressions)
    until = batch.column("until").to_numpy(zero_copy_only=False).astype(np.int64)
    return add_validity(rows, until, np.zeros(len(rows), np.bool_))
