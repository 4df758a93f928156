"""Frames: what is encoded is decoded, and damaged bytes are refused by the field's name."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.protocol.frame import Frame, FrameError, decode
from ps2stream.protocol.log_records import SplitRecord
from ps2stream.protocol.messages.objects import RoutedObjects
from ps2stream.protocol.rows import ObjectRows, QueryRows, no_queries
from tests.support.valid_objects import objects

INTEGERS = st.integers(-(2**63), 2**63 - 1)
HEAD_BYTES, FIELD_BYTES = 16, 16


def make_frame(numbers: list[int], words: list[int]) -> RoutedObjects:
    dispatcher, batch, attempt, route, lsn, needs, watermark, suspect = numbers
    row = np.array([abs(word) % 2**32 for word in words], np.uint32)
    term = np.array([abs(word) for word in words], np.uint64)
    lon = np.array(words, np.float64)
    offsets = np.array([0, len(words)])
    chosen = np.array([abs(word) % 2**8 for word in words], np.uint8).repeat(8)  # needs no padding
    return RoutedObjects(
        dispatcher, batch, attempt, route, lsn, needs, watermark, suspect,
        row, lon, lon[::2], offsets, term, chosen,
    )  # fmt: skip


@given(st.lists(INTEGERS, min_size=8, max_size=8), st.lists(INTEGERS, max_size=5))
def test_what_is_encoded_is_decoded(numbers: list[int], words: list[int]) -> None:
    frame = make_frame(numbers, words)  # lon[::2] is not contiguous
    found = decode(frame.encode())
    assert isinstance(found, RoutedObjects)
    for field in dataclasses.fields(RoutedObjects):
        column, wanted = getattr(found, field.name), getattr(frame, field.name)
        np.testing.assert_array_equal(column, wanted)
        if isinstance(wanted, np.ndarray):
            assert column.dtype == wanted.dtype
            assert not column.flags.writeable
            assert column.flags.aligned
    assert found.encode() == frame.encode()


@given(st.lists(INTEGERS, min_size=8, max_size=8), st.lists(INTEGERS, max_size=5))
def test_columns_are_viewed_as_they_are_decoded(numbers: list[int], words: list[int]) -> None:
    data = make_frame(numbers, words).encode()
    whole, names = vars(decode(data)), ["row", "term_off", "term", "chosen"]
    for some in (names, names[::-1], names[2:3], []):
        wanted = [whole[name] for name in names if name in some]  # in the order of the frame
        found = RoutedObjects.view_columns(data, *some)
        assert [(c.dtype, c.tolist()) for c in found] == [(c.dtype, c.tolist()) for c in wanted]
    if words:
        with pytest.raises(FrameError, match="cut short"):
            RoutedObjects.view_columns(data[: RoutedObjects.head_bytes() + 1], "row")


@given(st.lists(st.integers(0, 9), min_size=19, max_size=19))
def test_columns_are_written_into_the_room_of_a_frame(sizes: list[int]) -> None:
    names = [field.name for field in dataclasses.fields(QueryRows)]
    columns = {
        name: np.arange(1, n + 1).astype(getattr(no_queries(), name).dtype)
        for name, n in zip(names, sizes, strict=True)
    }
    room, starts = QueryRows.allocate(sizes)
    room_bytes = room.view(np.uint8)
    for start, column in zip(starts, columns.values(), strict=True):
        room_bytes[start : start + column.nbytes] = column.view(np.uint8)
    assert room.tobytes() == QueryRows(**columns).encode()


def test_every_cut_is_refused() -> None:
    data = make_frame([1, 2, 3, 4, 5, 5, 6, 0], [7, 8, 9]).encode()
    for size in range(len(data)):
        with pytest.raises(FrameError):
            decode(data[:size])


def test_a_column_of_another_type_is_refused_by_its_name() -> None:
    data = bytearray(make_frame([1, 2, 3, 4, 5, 5, 6, 0], [7]).encode())
    data[HEAD_BYTES + 9 * FIELD_BYTES] = 0
    with pytest.raises(FrameError, match=r"RoutedObjects\.lon: wrong column type"):
        decode(bytes(data))
    data = bytearray(SplitRecord(3).encode())
    data[HEAD_BYTES] = 0
    with pytest.raises(FrameError, match=r"SplitRecord\.at: expected an integer"):
        decode(bytes(data))


def test_a_column_longer_than_the_message_is_refused_by_its_name() -> None:
    data = bytearray(make_frame([1, 2, 3, 4, 5, 5, 6, 0], [7]).encode())
    at = HEAD_BYTES + 8 * FIELD_BYTES + 8
    for count in (2**40, -1):
        data[at : at + 8] = count.to_bytes(8, "little", signed=True)
        with pytest.raises(FrameError, match=r"RoutedObjects\.row: cut short"):
            decode(bytes(data))


@pytest.mark.parametrize(
    ("at", "value", "problem"),
    [
        (0, 1, "wrong magic number"),
        (4, 9, "frame version 9 is not 1"),
        (6, 255, "unknown frame kind"),
        (8, 9, "with 9 fields"),
    ],
)
def test_another_head_is_refused(at: int, value: int, problem: str) -> None:
    data = bytearray(SplitRecord(3).encode())
    data[at] = value
    with pytest.raises(FrameError, match=problem):
        decode(bytes(data))


def test_a_frame_of_another_class_is_refused() -> None:
    with pytest.raises(FrameError, match="expected a RoutedObjects, got a SplitRecord"):
        RoutedObjects.decode(SplitRecord(3).encode())


def test_a_kind_is_used_once() -> None:
    with pytest.raises(TypeError, match=f"frame kind {SplitRecord.KIND} is already used"):
        type("AnotherRecord", (Frame,), {"KIND": SplitRecord.KIND})


def test_a_field_of_another_type_is_refused() -> None:
    """It would be left out of every message."""
    body = {"KIND": 65_001, "__annotations__": {"names": "list[str]"}}
    with pytest.raises(TypeError, match=r"Odd\.names: a frame has no field of type list\[str\]"):
        type("Odd", (Frame,), body)


def test_fields_that_were_added_are_empty_in_frames_of_before() -> None:
    rows = objects([("a", "flood", 0), ("b", "", 7)])
    whole = rows.encode()
    added = len(ObjectRows._schema) - ObjectRows.ADDED
    head, body = 16 + 16 * added, 16 + 16 * len(ObjectRows._schema)
    size = -(-rows.until.nbytes // 8) * 8
    earlier = bytearray(whole[:head] + whole[body : len(whole) - size])
    earlier[8:12] = added.to_bytes(4, "little")
    found = ObjectRows.decode(bytes(earlier))
    assert not len(found.until)
    for name in ("id", "text", "term", "lon", "time"):
        assert getattr(found, name).tolist() == getattr(rows, name).tolist()
    assert ObjectRows.decode(whole).until.tolist() == [0, 7]
    earlier[8:12] = (added - 1).to_bytes(4, "little")
    with pytest.raises(FrameError, match="unknown frame kind"):
        ObjectRows.decode(bytes(earlier))
    earlier[8:12] = added.to_bytes(4, "little")
    for end in (16, head - 1, head + 1):
        with pytest.raises(FrameError, match="cut short"):
            ObjectRows.decode(bytes(earlier[:end]))
