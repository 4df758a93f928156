"""Encoded rows are found where they are, and damaged ones are none."""

# mypy: disable-error-code="type-var, call-arg, comparison-overlap"
from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from ps2stream.protocol.frame import I64, U8, U64, FrameError, sealed
from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.rows import QueryRows
from ps2stream.sequencer import encoded_rows
from ps2stream.sequencer.chunk_kernels import COLUMNS
from ps2stream.sequencer.encoded_rows import FIELDS, ROWS_HEAD, ROWS_WIDTHS
from ps2stream.sequencer.packed_rows import list_columns
from ps2stream.sequencer.registry import encode
from tests.support.updates import query_rows

NAMES = [field.name for field in dataclasses.fields(QueryRows)]


@njit
def find(frame: U8, starts: I64) -> bool:
    return encoded_rows.find_rows(frame, starts)


@njit
def read(frame: U8, starts: I64) -> Any:
    return encoded_rows.read_columns(frame, starts)


@njit
def lay_out(room: U64, count: int, sizes: I64, starts: I64) -> int:
    """Lays rows out behind one word, and returns the words of them."""
    elements = np.empty(FIELDS, np.int64)
    words = encoded_rows.size_rows(count, sizes, elements)
    encoded_rows.lay_out(room, 1, ROWS_HEAD, ROWS_WIDTHS, elements, starts)
    return words


ROWS = st.lists(
    st.tuples(
        st.sampled_from([1, 2, 3]),
        st.text("abc", max_size=9),
        st.just("s"),
        st.text("xy"),
        st.just(""),
    ),
    max_size=9,
)


@pytest.mark.takes_turns
@settings(deadline=None)
@given(ROWS)
def test_columns_are_read_in_place(rows: list[Any]) -> None:
    table = query_rows(rows, 5)
    starts = np.empty((2, FIELDS), np.int64)
    frame = encode(table)
    assert find(frame, starts)
    for name, begin, end in zip(NAMES, *starts, strict=True):
        column = getattr(table, name)
        assert frame[begin:end].view(column.dtype).tolist() == column.tolist()
    for found, column in zip(read(frame, starts), list_columns(table), strict=True):
        assert (found.dtype, found.tolist()) == (column.dtype, column.tolist())


@pytest.mark.takes_turns
@settings(deadline=None)
@given(ROWS)
def test_frames_are_laid_out_as_they_are_encoded(rows: list[Any]) -> None:
    table = query_rows(rows, 5)
    frame = encode(table).view(np.uint64)
    sizes = np.zeros((COLUMNS, len(table) + 1), np.int64)
    ragged = ("term", "prog", "box", "geom", "source", "id")
    sizes[:, -1] = [getattr(table, name + "_off")[-1] for name in ragged]
    room, starts = np.full(len(frame) + 2, 7, np.uint64), np.empty(FIELDS, np.int64)
    assert lay_out(room, len(table), sizes, starts) == len(frame)
    assert (room[0], room[-1]) == (7, 7)
    data = room.view(np.uint8)
    for name, at in zip(NAMES, starts, strict=True):
        column = getattr(table, name).view(np.uint8)
        data[at : at + len(column)] = column
    assert room[1:-1].tolist() == frame.tolist()


@pytest.mark.parametrize("at", [0, 4, 6, 8, 16, 24, 31, 16 + 16 * 4, 24 + 16 * 18, 31 + 16 * 18])
def test_a_damaged_head_is_no_frame(at: int) -> None:
    frame = encode(query_rows([(1, "a", "s", "x", "", 0)])).copy()  # type: ignore[list-item]
    frame[at] ^= 0x81
    with pytest.raises(FrameError):
        QueryRows.decode(frame.data)
    assert not find(sealed(frame), np.empty((2, FIELDS), np.int64))


def test_a_frame_that_is_cut_short_is_none() -> None:
    frame = encode(query_rows([(1, "a", "s", "x", "", 0)]))  # type: ignore[list-item]
    starts = np.empty((2, FIELDS), np.int64)
    assert find(frame, starts)
    end = int(starts[1].max())
    for size in range(0, end, 5):
        assert not find(frame[:size], starts)
    batch = LedgerBatch(1, 1, 0, 0, 0, frame)
    assert not find(np.frombuffer(batch.encode(), np.uint8), starts)
