"""The row tables, n queries or n objects as columns, and what a row of them means.

Conventions: LSNs start at 1; a handle is the LSN of the query's insert; times are Unix ms;
positions are degrees.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from ps2stream.protocol.addresses import nothing
from ps2stream.protocol.frame import (
    F64,
    I16,
    I64,
    U8,
    U64,
    Array,
    Frame,
    concat_ragged,
    slice_ragged,
    take_ragged,
)

NEVER = np.iinfo(np.int64).max  # delete_lsn of a live query


class UpdateKind(IntEnum):
    """The kind of an update. REPLACE is only requested, never committed: the ledger has a DELETE
    and an INSERT of one LSN instead, or an INSERT alone."""

    INSERT = 1
    DELETE = 2
    REPLACE = 3


class ExpressionForm(IntEnum):
    """The way in which the terms of a query combine; PROGRAM is postfix in `prog`."""

    ALL = 0  # conjunction of all terms; also the region-only query (its term is TOP)
    ANY = 1  # disjunction of all terms
    PROGRAM = 2


class RegionShape(IntEnum):
    """The shape of a region, and what `geom` holds for it."""

    WORLD = 0  # geom: nothing
    RECT = 1  # geom: lon_min, lat_min, lon_max, lat_max; lon_min > lon_max wraps
    CIRCLE = 2  # geom: lon, lat, radius_km
    POLYGON = 3  # geom: WKB, eight bytes a float64 element, zero padded; geom[0] = byte length


PROG_AND = -1  # postfix operators of `prog`; a value >= 0 pushes that term
PROG_OR = -2
PROG_NOT = -3  # of the one value before it
PROG_COMPARE = -4
"""Compares a value of the object; behind it stand the operator and what is compared with, see
programs.py. Such a program has notes."""
PROG_NOTES = -16
"""A program whose last value is at most this has notes behind it: PROG_NOTES - n stands behind n
pairs (number of the term | kind << 8, size), one for each watched literal; see
language/literals.py. Pairs of the kind 0 are of validity, see validity.py."""


@dataclasses.dataclass(frozen=True, eq=False)
class QueryRows(Frame):
    """The columns of n inserts and deletes. A delete repeats the columns of its insert, save
    `source`, so that it is routed as its insert was (algorithms.md 7.1). A replacement is a delete
    and an insert with the same LSN, in the ledger in this order; no batch ends between them.

    kind Kind; lsn of this update; handle; session number; id the client's string; form Form;
    post bit i set = term i is in P(q); term sorted unique hashes (at most 64, ragged); prog
    ragged postfix, perhaps with notes behind it; box ragged, four values a box: lon_min, lat_min,
    lon_max, lat_max, lon_min <= lon_max, one or two boxes; shape Shape; geom ragged; source the
    query in bytes, canonical and as typed, see language/query_rows.py (GetQuery and sameness).
    """

    KIND = 1
    kind: U8
    lsn: I64
    handle: I64
    session: I64
    id_off: I64
    id: U8
    form: U8
    post: U64
    term_off: I64
    term: U64
    prog_off: I64
    prog: I16
    box_off: I64
    box: F64
    shape: U8
    geom_off: I64
    geom: F64
    source_off: I64
    source: U8

    FLAT = ("kind", "lsn", "handle", "session", "form", "post", "shape")
    RAGGED = ("id", "term", "prog", "box", "geom", "source")

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def nbytes(self) -> int:
        """The bytes of all columns."""
        return sum(int(getattr(self, f.name).nbytes) for f in dataclasses.fields(self))

    def measure_rows(self) -> I64:
        """Returns the bytes that each row takes in all columns, int64[n]; of a ragged column these
        include one offset."""
        flat = sum(getattr(self, name).itemsize for name in self.FLAT)
        out = np.full(len(self), flat + self.id_off.itemsize * len(self.RAGGED), np.int64)
        for name in self.RAGGED:
            out += np.diff(getattr(self, name + "_off")) * getattr(self, name).itemsize
        return out

    def take(self, rows: I64) -> QueryRows:
        """Returns these rows, in this order, as new columns."""
        return QueryRows.from_columns(taken_columns(self.FLAT, self.RAGGED, self, rows))

    def slice(self, first: int, end: int) -> QueryRows:
        """Returns the rows first..end; the columns are views, except the offsets."""
        own = self.__dict__
        columns = {name: own[name][first:end] for name in self.FLAT}
        for name in self.RAGGED:
            found = slice_ragged(own[name + "_off"], own[name], first, end)
            columns[name + "_off"], columns[name] = found
        return QueryRows.from_columns(columns)

    def replace(self, **columns: object) -> QueryRows:
        """Returns the rows with some columns replaced. Raises TypeError for an unknown one."""
        if not columns.keys() <= self.__dict__.keys():
            raise TypeError(f"QueryRows has no columns {columns.keys() - self.__dict__.keys()}")
        return QueryRows.from_columns(self.__dict__ | columns)

    @classmethod
    def concat(cls, parts: list[QueryRows]) -> QueryRows:
        """Joins several batches end to end; at least one."""
        if len(parts) == 1:
            return parts[0]
        return cls.from_columns(concat_columns(cls.FLAT, cls.RAGGED, parts))


def concat_columns(
    flat: Sequence[str], ragged: Sequence[str], parts: Sequence[Frame]
) -> dict[str, Array]:
    """Returns the named columns of several batches, end to end."""
    every = [part.__dict__ for part in parts]
    out = {f: np.concatenate([own[f] for own in every]) for f in flat}
    for f in ragged:
        columns = [(own[f + "_off"], own[f]) for own in every]
        out[f + "_off"], out[f] = concat_ragged(columns)
    return out


def taken_columns(
    flat: Sequence[str], ragged: Sequence[str], table: Frame, rows: I64
) -> dict[str, Array]:
    """Returns the named columns of some rows, in this order."""
    own = table.__dict__
    out = {f: own[f][rows] for f in flat}
    for f in ragged:
        out[f + "_off"], out[f] = take_ragged(own[f + "_off"], own[f], rows)
    return out


def no_queries() -> QueryRows:
    """Returns a batch of no rows."""
    empty = {
        "kind": np.uint8,
        "form": np.uint8,
        "shape": np.uint8,
        "post": np.uint64,
        "id": np.uint8,
        "term": np.uint64,
        "prog": np.int16,
        "box": np.float64,
        "geom": np.float64,
        "source": np.uint8,
    }
    return QueryRows(
        **{
            f.name: np.zeros(1 if f.name.endswith("_off") else 0, empty.get(f.name, np.int64))
            for f in dataclasses.fields(QueryRows)
        }
    )


def no_offsets() -> I64:
    """Returns the offsets of a column that no row has."""
    return np.zeros(0, np.int64)


def take_optional(off: I64, data: Array, rows: Array) -> tuple[I64, Array]:
    """Returns some rows of a ragged column that may be absent (see ObjectRows) as a new one."""
    return take_ragged(off, data, rows) if len(off) else (off, data)


def concat_optional(parts: Sequence[tuple[I64, U8, int]]) -> tuple[I64, U8]:
    """Joins ragged columns that may be absent, each with its number of rows; absent if all are."""
    if not any(len(off) for off, _, _ in parts):
        return no_offsets(), nothing()
    return concat_ragged(
        [(off if len(off) else np.zeros(n + 1, np.int64), data) for off, data, n in parts]
    )


def concat_ends(parts: Sequence[tuple[I64, int]]) -> I64:
    """Joins columns of ends that may be absent, each with its number of rows; absent if all are."""
    if not any(len(until) for until, _ in parts):
        return no_offsets()
    return np.concatenate([until if len(until) else np.zeros(n, np.int64) for until, n in parts])


@dataclasses.dataclass(frozen=True, eq=False)
class ObjectRows(Frame):
    """The columns of n accepted objects, analysed. id and text ragged UTF-8; time ms; lon, lat
    degrees; term ragged, sorted unique hashes a row, TOP (language/analyzer.py) included; term_off
    is empty in the object log, which has no terms. opaque ragged bytes that pass through unread,
    for attributes and payloads; opaque_off is empty where no object has any. searched: the version
    of the literals that the terms were searched for (language/literals.py). until: the end of each
    object's validity in ms, 0 for none; empty where no object has any."""

    KIND = 2
    ADDED = 1
    id_off: I64
    id: U8
    time: I64
    lon: F64
    lat: F64
    text_off: I64
    text: U8
    term_off: I64
    term: U64
    opaque_off: I64 = dataclasses.field(default_factory=no_offsets)
    opaque: U8 = dataclasses.field(default_factory=nothing)
    searched: int = 0
    until: I64 = dataclasses.field(default_factory=no_offsets)

    FLAT = ("time", "lon", "lat")
    RAGGED = ("id", "text", "term")

    def __len__(self) -> int:
        return len(self.lon)

    @property
    def nbytes(self) -> int:
        """The bytes of all columns."""
        return (
            self.id_off.nbytes + self.id.nbytes
            + self.time.nbytes + self.lon.nbytes + self.lat.nbytes
            + self.text_off.nbytes + self.text.nbytes
            + self.term_off.nbytes + self.term.nbytes
            + self.opaque_off.nbytes + self.opaque.nbytes + self.until.nbytes
        )  # fmt: skip

    def take(self, rows: I64) -> ObjectRows:
        """Returns these rows, in this order, as new columns."""
        columns = taken_columns(self.FLAT, ("id", "text"), self, rows)
        columns["term_off"], columns["term"] = take_optional(self.term_off, self.term, rows)
        columns["opaque_off"], columns["opaque"] = take_optional(self.opaque_off, self.opaque, rows)
        until = self.until[rows] if len(self.until) else self.until
        return ObjectRows(**columns, searched=self.searched, until=until)

    def without_terms(self) -> ObjectRows:
        """Returns the objects as the object log has them."""
        return self.with_terms(no_offsets(), np.zeros(0, np.uint64), 0)

    def with_terms(self, term_off: I64, term: U64, searched: int) -> ObjectRows:
        """Returns the objects with other terms."""
        return dataclasses.replace(self, term_off=term_off, term=term, searched=searched)

    @classmethod
    def concat(cls, parts: list[ObjectRows]) -> ObjectRows:
        """Joins several batches end to end; at least one."""
        if len(parts) == 1:
            return parts[0]
        columns = concat_columns(cls.FLAT, cls.RAGGED, parts)
        searched = min(part.searched for part in parts)
        opaque = concat_optional([(p.opaque_off, p.opaque, len(p)) for p in parts])
        columns["opaque_off"], columns["opaque"] = opaque
        until = concat_ends([(part.until, len(part)) for part in parts])
        return cls(**columns, searched=searched, until=until)


def has_term(rows: QueryRows, term: U64) -> NDArray[np.bool_]:
    """Returns bool[n]: which rows have one of these terms, uint64[m]; all of them if m is 0."""
    if not len(term):
        return np.ones(len(rows), np.bool_)
    count = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.isin(rows.term, term))])
    return count[rows.term_off[1:]] > count[rows.term_off[:-1]]
