"""The readers of Protocol Buffers against one that takes a byte at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from ps2stream.protocol.wire_kernels import BAD, count_entries, scan

U64 = st.integers(0, 2**64 - 1) | st.sampled_from([0, 127, 128, 2**31, 2**32 - 1, 2**32, 2**63])


class MalformedError(Exception):
    """The bytes are no message."""


def take_varint(data: bytes, shifts: int) -> tuple[int, bytes]:
    """The first varint, of at most this many bytes, and the rest."""
    for i in range(shifts):
        if i == len(data):
            break
        if data[i] < 128:
            return sum((b & 127) << 7 * k for k, b in enumerate(data[: i + 1])), data[i + 1 :]
    raise MalformedError


def put_varint(value: int) -> bytes:
    return put_varint_head(value) if value > 127 else bytes([value])


def put_varint_head(value: int) -> bytes:
    return bytes([value % 128 + 128]) + put_varint(value // 128)


def signed(value: int) -> int:
    """A number of 64 bits as an int64."""
    value %= 2**64
    return value - 2**64 if value >= 2**63 else value


def fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """The fields with one-byte tags: numbers and bytes."""
    out: list[tuple[int, int | bytes]] = []
    while data:
        tag, data = data[0], data[1:]
        if tag > 127:
            raise MalformedError
        value, data = take_varint(data, 10)
        if tag & 7 == 0:
            out.append((tag >> 3, signed(value)))
            continue
        if tag & 7 != 2 or not 0 <= signed(value) <= len(data):
            raise MalformedError
        out.append((tag >> 3, data[: signed(value)]))
        data = data[signed(value) :]
    return out


def field_bytes(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return bytes([number << 3]) + put_varint(value)
    return bytes([number << 3 | 2]) + put_varint(len(value)) + value


MESSAGES = st.lists(st.builds(field_bytes, st.integers(0, 15), U64 | st.binary(max_size=200)))
BYTES = MESSAGES.map(b"".join) | st.binary(max_size=40)
CUT = st.integers(0, 3)


@given(BYTES, CUT, st.integers(0, 12))
@example(b"\x08" + b"\xff" * 9 + b"\x01", 0, 4)
@example(b"\x12" + b"\xff" * 9 + b"\x01", 0, 4)
@example(b"\x08" + b"\x80" * 10 + b"\x00", 0, 4)
def test_fields_are_those_of_the_twin(message: bytes, cut: int, room: int) -> None:
    message = message[: len(message) - cut]
    data = np.frombuffer(b"\x08" + message + b"\x01\x02", np.uint8)
    number = np.full(room + 1, 99, np.uint8)
    start, stop = np.full((2, room + 1), -7, np.int64)
    n = scan(data, 1, 1 + len(message), number[:room], start[:room], stop[:room])
    assert (number[room], start[room], stop[room]) == (99, -7, -7)
    try:
        want = fields(message)
    except MalformedError:
        assert n == BAD
        return
    assert n == len(want)
    for i, (field, value) in enumerate(want[:room]):
        assert number[i] == field
        if isinstance(value, int):
            assert start[i] == stop[i] == value
        else:
            assert data[start[i] : stop[i]].tobytes() == value


@given(
    st.lists(st.lists(st.binary(max_size=150), max_size=5)),
    st.integers(1, 15),
    st.integers(1, 15),
    st.integers(0, 20),
)
def test_entries_are_counted_as_they_were_written(
    messages: list[list[bytes]], outer: int, inner: int, limit: int
) -> None:
    """Among other fields of all kinds."""
    other = inner % 15 + 1
    extra = field_bytes(other, 2**63) + bytes([other << 3 | 1]) + bytes(8)
    extra += bytes([other << 3 | 5]) + bytes(4) + field_bytes(other, b"x")
    bodies = [extra + b"".join(field_bytes(inner, e) + extra for e in m) for m in messages]
    data = b"".join(field_bytes(outer, body) for body in bodies)
    column = np.frombuffer(data, np.uint8)
    assert count_entries(column, outer, inner, limit) == min(sum(map(len, messages)), limit + 1)
    assert count_entries(column, 0, outer, 10**6) == len(messages)
    if messages and limit >= sum(map(len, messages)):
        assert count_entries(column[:-1], outer, inner, limit) == BAD
