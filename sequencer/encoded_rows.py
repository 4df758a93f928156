"""Kernels that read encoded frames of columns in place, and lay them out (protocol/frame.py).

A head has a word for magic number, version and kind, one for the number of fields, and two for each
field: the code of its type, and the number of its elements, or its value. A head of frames of a
class without elements is that class here; the columns follow, each from a multiple of eight bytes.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit

from ps2stream.protocol.frame import I64, U8, U64, Frame, sealed
from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.ports import NamedUpdates
from ps2stream.protocol.rows import QueryRows


def _make_head(kind: type[Frame]) -> U64:
    """Returns the head of a frame of no elements."""
    return sealed(kind.allocate([0] * len(kind.element_bytes()))[0])


# The fields of QueryRows, and their number.
KIND, LSN, HANDLE, SESSION, ID_OFF, ID, FORM, POST, TERM_OFF, TERM = range(10)
PROG_OFF, PROG, BOX_OFF, BOX, SHAPE, GEOM_OFF, GEOM, SOURCE_OFF, SOURCE = range(10, 19)
FIELDS: Final = 19
BATCH_ROWS: Final = 5  # the field of LedgerBatch that has the rows
ROWS_HEAD, REQUESTS_HEAD, BATCH_HEAD = map(_make_head, (QueryRows, NamedUpdates, LedgerBatch))
ROWS_WIDTHS, REQUESTS_WIDTHS = (
    sealed(np.array(kind.element_bytes())) for kind in (QueryRows, NamedUpdates)
)


@njit(inline="always")
def find_columns(frame: U8, head: U64, widths: I64, starts: I64) -> bool:
    """Finds where the columns of an encoded frame of this head begin and end, in bytes; starts
    int64[2, fields]. Returns False for what is no such frame, or is cut short."""
    at = 8 * len(head)
    if len(frame) < at:
        return False
    words = frame[:at].view(np.uint64)
    for i in range(len(head)):
        if (i < 2 or not i & 1) and words[i] != head[i]:
            return False
    for i in range(len(widths)):
        size = np.int64(words[3 + 2 * i])
        if size < 0 or size > len(frame):
            return False
        starts[0, i], starts[1, i] = at, at + size * widths[i]
        if starts[1, i] > len(frame):
            return False
        at = (starts[1, i] + 7) & -8
    return True


@njit(inline="always")
def find_rows(frame: U8, starts: I64) -> bool:
    """Finds the columns of encoded QueryRows, as find_columns does."""
    return find_columns(frame, ROWS_HEAD, ROWS_WIDTHS, starts)


@njit(inline="always")
def read_words(frame: U8, starts: I64, field: int) -> U64:
    """Returns a column of uint64, as found."""
    return frame[starts[0, field] : starts[1, field]].view(np.uint64)


@njit(inline="always")
def read_numbers(frame: U8, starts: I64, field: int) -> I64:
    """Returns a column of int64, as found."""
    return frame[starts[0, field] : starts[1, field]].view(np.int64)


@njit(inline="always")
def read_bytes(frame: U8, starts: I64, field: int) -> U8:
    """Returns the bytes of a column, as found."""
    return frame[starts[0, field] : starts[1, field]]


@njit(inline="always")
def read_columns(frame: U8, starts: I64) -> tuple[Any, ...]:
    """Returns the columns as RowColumns has them, as found."""
    return (
        read_numbers(frame, starts, SESSION),
        read_bytes(frame, starts, FORM), read_words(frame, starts, POST),
        read_bytes(frame, starts, SHAPE),
        read_numbers(frame, starts, ID_OFF), read_bytes(frame, starts, ID),
        read_numbers(frame, starts, TERM_OFF), read_words(frame, starts, TERM),
        read_numbers(frame, starts, PROG_OFF), read_bytes(frame, starts, PROG),
        read_numbers(frame, starts, BOX_OFF), read_bytes(frame, starts, BOX),
        read_numbers(frame, starts, GEOM_OFF), read_bytes(frame, starts, GEOM),
        read_numbers(frame, starts, SOURCE_OFF), read_bytes(frame, starts, SOURCE),
    )  # fmt: skip


@njit(inline="always")
def size_rows(count: int, sizes: I64, elements: I64) -> int:
    """Finds the elements of each column, int64[FIELDS], of so many rows as encoded QueryRows whose
    offsets measure_rows has found. Returns the words of the frame."""
    for field in range(FIELDS):
        elements[field] = count
    for field in (ID_OFF, TERM_OFF, PROG_OFF, BOX_OFF, GEOM_OFF, SOURCE_OFF):
        elements[field] = count + 1
    # In the order of chunk_kernels.py.
    elements[TERM], elements[PROG], elements[BOX] = (
        sizes[0, count],
        sizes[1, count],
        sizes[2, count],
    )
    elements[GEOM], elements[SOURCE], elements[ID] = (
        sizes[3, count],
        sizes[4, count],
        sizes[5, count],
    )
    return count_words(ROWS_HEAD, ROWS_WIDTHS, elements)


@njit(inline="always")
def count_words(head: U64, widths: I64, elements: I64) -> int:
    """Returns the words of a frame of columns with so many elements."""
    words = len(head)
    for i in range(len(elements)):
        words += (widths[i] * elements[i] + 7) >> 3
    return words


@njit(inline="always")
def lay_out(room: U64, at: int, head: U64, widths: I64, elements: I64, starts: I64) -> None:
    """Writes the head of a frame of columns that begins at word `at`, and the pads of the columns;
    finds where they begin in `room`, in bytes."""
    for i in range(len(head)):
        room[at + i] = head[i]
    end = at + len(head)
    for i in range(len(elements)):
        room[at + 3 + 2 * i] = np.uint64(elements[i])
        starts[i] = 8 * end
        size = widths[i] * elements[i]
        end += (size + 7) >> 3
        if size & 7:
            room[end - 1] = 0
