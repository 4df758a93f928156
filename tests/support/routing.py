"""Small columnar batches for the tests of plans, gridt and the router."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.frame import F64, I64, U64, strings_to_column
from ps2stream.protocol.rows import ObjectRows, QueryRows, UpdateKind, no_queries

Box = tuple[float, float, float, float]


class Row(NamedTuple):
    """One insert or delete; `post` are the positions of the posting terms in `terms`."""

    terms: tuple[int, ...]
    post: tuple[int, ...]
    boxes: tuple[Box, ...] = ((-180.0, -90.0, 180.0, 90.0),)
    kind: UpdateKind = UpdateKind.INSERT
    lsn: int = 1
    handle: int = 1


def ragged(rows: list[tuple[float, ...]], dtype: type) -> tuple[I64, NDArray[np.generic]]:
    """A ragged column of numbers."""
    off = np.zeros(len(rows) + 1, np.int64)
    off[1:] = np.cumsum([len(r) for r in rows])
    return off, np.array([v for r in rows for v in r], dtype)


def query_rows(rows: list[Row]) -> QueryRows:
    """QueryRows with what routing looks at; the other columns are plausible."""
    n = len(rows)
    if not n:
        return no_queries()
    term_off, term = ragged([r.terms for r in rows], np.uint64)
    box_off, box = ragged([tuple(v for b in r.boxes for v in b) for r in rows], np.float64)
    id_off, id_ = strings_to_column([f"q{r.handle}" for r in rows])
    source_off, source = strings_to_column(["{}"] * n)
    none = np.zeros(n + 1, np.int64)
    return no_queries().replace(
        kind=np.array([r.kind for r in rows], np.uint8),
        lsn=np.array([r.lsn for r in rows]),
        handle=np.array([r.handle for r in rows]),
        session=np.ones(n, np.int64),
        form=np.zeros(n, np.uint8),
        post=np.array([sum(1 << p for p in r.post) for r in rows], np.uint64),
        shape=np.ones(n, np.uint8),
        term_off=term_off,
        term=term,
        box_off=box_off,
        box=box,
        id_off=id_off,
        id=id_,
        source_off=source_off,
        source=source,
        prog_off=none,
        geom_off=none,
    )


def objects(
    lon: list[float], lat: list[float], terms: list[tuple[int, ...]]
) -> tuple[F64, F64, I64, U64]:
    """The columns that are routed."""
    term_off, term = ragged(list(terms), np.uint64)
    return np.array(lon, np.float64), np.array(lat, np.float64), term_off, term  # type: ignore[return-value]


def object_rows(lon: list[float], lat: list[float], terms: list[tuple[int, ...]]) -> ObjectRows:
    """A batch of objects o0, o1, ... with the text "t"."""
    n = len(lon)
    x, y, term_off, term = objects(lon, lat, terms)
    id_off, id_ = strings_to_column([f"o{i}" for i in range(n)])
    text_off, text = strings_to_column(["t"] * n)
    return ObjectRows(id_off, id_, np.arange(n), x, y, text_off, text, term_off, term)
