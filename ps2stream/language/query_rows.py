"""Assembling QueryRows: ids, compiled expressions and regions as the columns of inserts.

The `source` of a row is its query in bytes: the shape (one byte), the geometry (float64
elements, little-endian), the end of the query if it has one (protocol/validity.py), then the
canonical expression in UTF-8. Equal queries are equal up to there (semantics.md 5). Where the
client wrote the expression in other words, a NUL, which no canonical expression has, and the text
as typed follow; ledgers of older versions have none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ps2stream.errors import InvalidArgument, Violation
from ps2stream.language import row_kernels
from ps2stream.language.expression import CompiledColumn
from ps2stream.limits import ID_BYTES
from ps2stream.protocol.addresses import nothing
from ps2stream.protocol.frame import F64, I64, U8, sealed, take_ragged
from ps2stream.protocol.rows import QueryRows, RegionShape, UpdateKind
from ps2stream.protocol.validity import split_end
from ps2stream.space import space_kernels as kernels
from ps2stream.space.polygons import Bool
from ps2stream.space.region_rows import (
    boxes_of,
    decode_region,
    geom_of,
    rect_problems,
    shape_of,
)
from ps2stream.space.regions import RECT_FIELDS, Region, World

StringColumn = tuple[I64, U8]  # offsets int64[n + 1], UTF-8 bytes

_WORDS = {RegionShape.WORLD: 0, RegionShape.RECT: 4, RegionShape.CIRCLE: 3}
_INSERT, _DELETE = int(UpdateKind.INSERT), int(UpdateKind.DELETE)  # NumPy takes members slowly
_WORLD_BOX = (-180.0, -90.0, 180.0, 90.0)


class RowProblem(NamedTuple):
    """A row that cannot be inserted; `field` within the query (`region.lat_min`)."""

    row: int
    field: str
    description: str


@dataclasses.dataclass(frozen=True, eq=False)
class RectColumns:
    """The columns of n rectangles, four float64[n] of degrees; `world` (bool[n]) marks rows
    without a region, whose sides are ignored."""

    lon_min: F64
    lat_min: F64
    lon_max: F64
    lat_max: F64
    world: Bool | None = None

    def __len__(self) -> int:
        return len(self.lon_min)

    def count_bad_rows(self) -> int:
        """Returns how many rectangles `list_problems` would describe."""
        return int(kernels.count_bad_rects(*self._list_sides(), self._list_world()))

    def list_problems(self) -> list[tuple[int, str, str]]:
        """Returns (row, `region.<side>`, description) of bad rectangles, in row order."""
        if not self.count_bad_rows():
            return []
        rects = np.column_stack(self._list_sides())
        rects[self.is_world()] = _WORLD_BOX
        return rect_problems(rects)

    def pack(self) -> tuple[U8, tuple[I64, F64], tuple[I64, F64]]:
        """Returns the columns shape, geom and box of QueryRows, the last two ragged; -0.0 is 0.0
        in them, and rows without a region have the whole world as their box."""
        n = len(self)
        shape, off = np.empty(n, np.uint8), np.empty((2, n + 1), np.int64)
        geom, box = np.empty(4 * n), np.empty((2 * n, 4))
        words, boxes = kernels.pack_rects(
            self._list_sides(), self._list_world(), shape, off, geom, box
        )
        return shape, (off[0], geom[:words]), (off[1], box[:boxes].ravel())

    def is_world(self) -> Bool:
        """Returns which rows have no region."""
        return np.zeros(len(self), np.bool_) if self.world is None else self.world

    def _list_sides(self) -> tuple[F64, F64, F64, F64]:
        """Returns the four sides, for kernels."""
        west, south, east, north = (
            sealed(np.asarray(getattr(self, name), np.float64)) for name in RECT_FIELDS
        )
        return west, south, east, north

    def _list_world(self) -> U8:
        """Returns which rows have no region, for kernels; empty where all have one."""
        return sealed(nothing() if self.world is None else self.world.view(np.uint8))


Regions = Sequence[Region] | RectColumns


def check_rows(ids: StringColumn, compiled: CompiledColumn, regions: Regions) -> list[RowProblem]:
    """Returns the problems of the rows in row order: of ids, expressions, sides of rectangle
    columns, and queries with neither expression nor region."""
    n = len(compiled.form)
    if len(ids[0]) - 1 != n or len(regions) != n:
        raise ValueError(f"{len(ids[0]) - 1} ids, {n} expressions, {len(regions)} regions")
    problems = [RowProblem(*p) for p in id_problems(ids)]
    problems += [RowProblem(row, "expression", str(error)) for row, error in compiled.errors]
    if isinstance(regions, RectColumns):
        problems += [RowProblem(*p) for p in regions.list_problems()]
        world = regions.is_world()
    else:
        world = np.fromiter((isinstance(r, World) for r in regions), np.bool_, n)
    empty = compiled.canonical_off[1:] == compiled.canonical_off[:-1]
    empty[[row for row, _ in compiled.errors]] = False
    problems += [
        RowProblem(row, "expression", "a query needs an expression or a region")
        for row in np.flatnonzero(empty & world).tolist()
    ]
    return sorted(problems, key=lambda p: p.row)


def id_problems(ids: StringColumn) -> list[tuple[int, str, str]]:
    """Returns (row, "id", description) of the ids that are not 1 to 128 bytes of UTF-8."""
    off, data = ids
    if not row_kernels.count_odd_ids(sealed(off), sealed(data), ID_BYTES):
        return []
    size = np.diff(off)
    bad = (size < 1) | (size > ID_BYTES)
    problems = [
        (row, "id", f"{size[row]} bytes are not in 1..{ID_BYTES} (limit id_bytes)")
        for row in np.flatnonzero(bad).tolist()
    ]
    text = data[off[0] : off[-1]]
    if len(text) and text.min() == 0:
        with_nul = np.searchsorted(off, np.flatnonzero(text == 0) + off[0], "right") - 1
        problems += [
            (row, "id", "contains a NUL character") for row in np.unique(with_nul).tolist()
        ]
    if len(text) and text.max() >= 0x80:
        for row in np.flatnonzero(~bad).tolist():
            try:
                data[off[row] : off[row + 1]].tobytes().decode()
            except UnicodeDecodeError as error:
                problems.append((row, "id", f"is not UTF-8: {error.reason}"))
    return problems


def build_rows(
    ids: StringColumn,
    compiled: CompiledColumn,
    regions: Regions,
    typed: StringColumn | None = None,
) -> QueryRows:
    """Builds inserts as columns; lsn, handle and session are 0.

    ids ragged UTF-8, n rows; compiled n expressions; regions n; typed the n expressions as the
    client wrote them, to be shown again (None: in canonical form). Rectangle columns take no
    Python step a row. Raises InvalidArgument naming every bad field as `queries[i].field`.
    """
    problems = check_rows(ids, compiled, regions)
    if problems:
        raise InvalidArgument([Violation(f"queries[{row}].{f}", text) for row, f, text in problems])
    return build_checked_rows(ids, compiled, regions, typed)


def build_checked_rows(
    ids: StringColumn, compiled: CompiledColumn, regions: Regions, typed: StringColumn | None = None
) -> QueryRows:
    """Builds inserts as `build_rows` does, of rows in which `check_rows` has found no problem."""
    n = len(regions)
    if isinstance(regions, RectColumns):
        shape, geom, box = regions.pack()
    else:
        shape = np.fromiter(map(shape_of, regions), np.uint8, n)
        geom = _join_rows([geom_of(r) for r in regions])
        box = _join_rows([boxes_of(r).ravel() for r in regions])
    id_off, id_ = _shift_to_zero(*ids)
    text = _shift_to_zero(compiled.canonical_off, compiled.canonical)
    source_off, source = _build_sources(shape, geom, text, text if typed is None else typed)
    return QueryRows(
        kind=np.full(n, _INSERT, np.uint8),
        lsn=np.zeros(n, np.int64),
        handle=np.zeros(n, np.int64),
        session=np.zeros(n, np.int64),
        id_off=id_off,
        id=id_,
        form=compiled.form,
        post=compiled.post,
        term_off=compiled.term_off,
        term=compiled.term,
        prog_off=compiled.prog_off,
        prog=compiled.prog,
        box_off=box[0],
        box=box[1],
        shape=shape,
        geom_off=geom[0],
        geom=geom[1],
        source_off=source_off,
        source=source,
    )


def delete_rows(ids: StringColumn) -> QueryRows:
    """Builds deletes as columns: kind and id; the other columns are zeros or empty. Raises
    InvalidArgument for a bad id."""
    problems = id_problems(ids)
    if problems:
        raise InvalidArgument([Violation(f"ids[{row}]", text) for row, _, text in problems])
    n = len(ids[0]) - 1
    off = np.zeros(n + 1, np.int64)
    id_off, id_ = _shift_to_zero(*ids)
    return QueryRows(
        kind=np.full(n, _DELETE, np.uint8),
        lsn=np.zeros(n, np.int64),
        handle=np.zeros(n, np.int64),
        session=np.zeros(n, np.int64),
        id_off=id_off,
        id=id_,
        form=np.zeros(n, np.uint8),
        post=np.zeros(n, np.uint64),
        term_off=off,
        term=np.zeros(0, np.uint64),
        prog_off=off,
        prog=np.zeros(0, np.int16),
        box_off=off,
        box=np.zeros(0),
        shape=np.zeros(n, np.uint8),
        geom_off=off,
        geom=np.zeros(0),
        source_off=off,
        source=np.zeros(0, np.uint8),
    )


class DescribedQuery(NamedTuple):
    """What the source of a row says: the expression as typed (canonical where that was not kept),
    the region in its JSON form, or None, the canonical expression, and the end of the query in Unix
    ms, 0 for none."""

    expression: str
    region: dict[str, Any] | None
    canonical: str
    until: int = 0


def describe(source: bytes) -> DescribedQuery:
    """Returns what the source of a row says."""
    shape = RegionShape(source[0])
    words = _WORDS.get(shape)
    if words is None:  # a polygon begins with the length of its WKB
        words = 1 + -(-int(np.frombuffer(source, "<f8", 1, 1)[0]) // 8)
    region = decode_region(shape, np.frombuffer(source, "<f8", words, 1))
    until, texts = split_end(source[1 + 8 * words :])
    canonical, _, typed = texts.decode("utf-8", "replace").partition("\0")
    return DescribedQuery(typed or canonical, region.to_json(), canonical, until)


def canonical_sources(rows: QueryRows, at: I64) -> list[bytes]:
    """Returns the sources of the inserts `at` without what was typed: equal for equal queries."""
    off, source = take_ragged(rows.source_off, rows.source, at)
    text = np.minimum(off[:-1] + 1 + 8 * (rows.geom_off[at + 1] - rows.geom_off[at]), off[1:])
    nul = np.append(np.flatnonzero(source == 0), len(source))
    end = np.minimum(nul[np.searchsorted(nul, text)], off[1:])
    data = source.tobytes()
    return list(map(data.__getitem__, map(slice, off[:-1].tolist(), end.tolist())))


def _build_sources(
    shape: U8, geom: tuple[I64, F64], text: StringColumn, typed: StringColumn
) -> StringColumn:
    """Returns the column `source`."""
    text_off, canonical = sealed(text[0]), sealed(text[1])
    typed_off, written = sealed(typed[0]), sealed(typed[1])
    geom_off = sealed(geom[0])
    off = np.empty(len(shape) + 1, np.int64)
    row_kernels.measure_sources(geom_off, text_off, canonical, typed_off, written, off)
    out = np.empty(off[-1], np.uint8)
    words = np.ascontiguousarray(geom[1], "<f8").view(np.uint8)
    row_kernels.write_sources(
        shape, (geom_off, words), (text_off, canonical), (typed_off, written), off, out
    )
    return off, out


def _join_rows(rows: list[F64]) -> tuple[I64, F64]:
    """Joins arrays into a ragged column."""
    off = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(r) for r in rows], out=off[1:])
    return off, np.concatenate([np.zeros(0), *rows])


def _shift_to_zero(off: I64, data: U8) -> StringColumn:
    """Returns the same ragged column with offsets that begin at 0."""
    first = off[0]
    return (off - first if first else off), data[first : off[-1]]
