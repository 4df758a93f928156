"""Damaged and hostile input: sound bytes with edits, messages with odd values in every field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

Edit = tuple[str, int, bytes]
_KINDS = ("flip", "cut", "drop", "insert", "repeat", "set")
_NUMBERS = (0, 1, 2, 127, 128, 255, 256, 1 << 15, 1 << 31, (1 << 32) - 1, (1 << 63) - 1)
TEXTS = (
    "", "q", "s", "storm", "flood AND (river OR creek)", "((((((((((a))))))))))", "NOT x", "*",
    "a\0b", "\0", "\ufb00", "\u0130", "\u0915\u094d\u200d\u0937", "\U0001f469\u200d\U0001f467",
    "\u200b", "x" * 129, "\u00e9" * 65, "(" * 3000, "a OR " * 300 + "a",
    '{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,0]]]}',
    '{"type":"Polygon","coordinates":[[[0,0],[1,1],[1,0],[0,1],[0,0]]]}',
    '{"type":"MultiPolygon","coordinates":[]}', '{"type":"Polygon","coordinates":[[[1e999,0]]]}',
    '{"type":"Polygon","coordinates":' + "[" * 2000, "NaN", "-1", "1", "9" * 18,
)  # fmt: skip
FLOATS = (
    0.0, -0.0, 1.0, -1.0, 90.0, -90.0, 180.0, -180.0, 90.0000001, 1e300, 5e-324, 20_015.2,
    float("nan"), float("inf"), float("-inf"),
)  # fmt: skip


def edits(most: int = 4) -> st.SearchStrategy[list[Edit]]:
    """For `edited`."""
    small = st.sampled_from([n.to_bytes(8, "little")[: 1 + i % 8] for i, n in enumerate(_NUMBERS)])
    piece = st.one_of(st.binary(min_size=1, max_size=8), small)
    return st.lists(
        st.tuples(st.sampled_from(_KINDS), st.integers(0, 1 << 16), piece), max_size=most
    )


def edited(data: bytes, changes: Sequence[Edit]) -> bytes:
    """The bytes after these changes, each at a position modulo their number."""
    out = bytearray(data)
    for kind, position, piece in changes:
        at = position % (len(out) + 1)
        match kind:
            case "flip":
                if at < len(out):
                    out[at] ^= 1 << (piece[0] & 7)
            case "cut":
                del out[at:]
            case "drop":
                del out[at : at + 1 + piece[0] % 16]
            case "insert":
                out[at:at] = piece
            case "repeat":
                out[at:at] = out[at : at + 1 + piece[0]]
            case "set":
                out[at : at + len(piece)] = piece
    return bytes(out)


def damaged(seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Some of the seeds, edited."""
    return st.builds(edited, st.sampled_from(list(seeds)), edits())


def messages(
    descriptor: Descriptor, arrow: st.SearchStrategy[bytes], depth: int = 6
) -> st.SearchStrategy[Message]:
    """Messages of a type with anything in their fields; bytes fields hold `arrow`."""
    kind = GetMessageClass(descriptor)
    fields = {
        f.name: _values(f, arrow, depth)
        for f in descriptor.fields
        if depth or f.message_type is None
    }

    def build(values: dict[str, Any]) -> Message:
        return kind(**values)

    return st.fixed_dictionaries({}, optional=fields).map(build)


def _values(
    field: FieldDescriptor, arrow: st.SearchStrategy[bytes], depth: int
) -> st.SearchStrategy[Any]:
    found: st.SearchStrategy[Any]
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        sides = (_values(entry[side], arrow, depth - 1) for side in ("key", "value"))
        return st.dictionaries(*sides, max_size=3)
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_MESSAGE:
            assert field.message_type is not None
            found = messages(field.message_type, arrow, depth - 1)
        case FieldDescriptor.CPPTYPE_DOUBLE:
            found = st.one_of(st.sampled_from(FLOATS), st.floats(-180, 180))
        case FieldDescriptor.CPPTYPE_BOOL:
            found = st.booleans()
        case FieldDescriptor.CPPTYPE_ENUM:
            found = st.integers(0, 9)
        case FieldDescriptor.CPPTYPE_STRING:
            text = st.one_of(st.sampled_from(TEXTS), st.text(max_size=12))
            found = arrow if field.type == FieldDescriptor.TYPE_BYTES else text
        case number:
            signed = number in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
            wide = number in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
            bits = (64 if wide else 32) - signed
            low = -(1 << bits) if signed else 0
            found = st.one_of(st.integers(0, 3), st.integers(low, (1 << bits) - 1))
    return st.lists(found, max_size=3) if field.is_repeated else found
