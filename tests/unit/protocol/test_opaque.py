"""The opaque column against lists of bytes."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from ps2stream.protocol.frame import I64, U8, strings_to_column
from ps2stream.protocol.opaque import OpaqueColumns, pack_opaque, split_opaque

MESSAGES = st.binary(max_size=20) | st.sampled_from([b"", b"a" * 255, b"b" * 70_000])


def rows_of(off: I64, data: U8) -> list[bytes]:
    return [data[a:b].tobytes() for a, b in itertools.pairwise(off.tolist())]


@given(st.lists(st.tuples(MESSAGES, MESSAGES), max_size=8))
def test_messages_are_packed_and_split_again(rows: list[tuple[bytes, bytes]]) -> None:
    attributes, payloads = [a for a, _ in rows], [p for _, p in rows]
    columns = OpaqueColumns(*strings_to_column(attributes), *strings_to_column(payloads))
    off, data = pack_opaque(columns)
    if not any(a + p for a, p in rows):
        assert (len(off), len(data)) == (0, 0)
    else:
        assert rows_of(off, data) == [
            len(a).to_bytes(4, "little") + a + p if a + p else b"" for a, p in rows
        ]
    found = split_opaque(off, data, len(rows))
    assert rows_of(found.attributes_off, found.attributes) == attributes
    assert rows_of(found.payload_off, found.payload) == payloads
