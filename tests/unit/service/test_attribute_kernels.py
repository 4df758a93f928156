"""The kernels that write attributes and payloads, against the Protocol Buffers runtime."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.protocol.frame import I64, U8, sealed, strings_to_column
from ps2stream.service import attribute_kernels as kernels
from ps2stream.service.attribute_messages import encode_in_order
from ps2stream.v1.object_pb2 import Attributes, AttributeValue, Payload

INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, 127, 128, -1])


def rows_of(column: tuple[I64, U8]) -> list[bytes]:
    off, data = column
    return [data[a:b].tobytes() for a, b in itertools.pairwise(off.tolist())]


def flags(values: list[Any]) -> U8:
    return sealed(np.array([value is not None for value in values], np.uint8))


@pytest.mark.parametrize(
    ("tag", "field"),
    [(kernels.INTEGER_TAG, "integer"), (kernels.TIME_TAG, "time_ms")],
)
@given(values=st.lists(INT64, max_size=20))
def test_integers_are_written_as_by_the_runtime(tag: int, field: str, values: list[int]) -> None:
    found = kernels.encode_numbers(tag, sealed(np.array(values, np.int64)))
    want = [
        (
            AttributeValue(integer=v) if field == "integer" else AttributeValue(time_ms=v)
        ).SerializeToString()
        for v in values
    ]
    assert rows_of(found) == want


@given(st.lists(st.floats(allow_nan=False), max_size=20))
def test_numbers_and_booleans_are_written_as_by_the_runtime(values: list[float]) -> None:
    bits = [struct.unpack("<q", struct.pack("<d", v))[0] for v in values]
    found = kernels.encode_numbers(kernels.NUMBER_TAG, sealed(np.array(bits, np.int64)))
    assert rows_of(found) == [AttributeValue(number=v).SerializeToString() for v in values]
    truth = sealed(np.array([int(bool(v)) for v in values], np.int64))
    found = kernels.encode_numbers(kernels.BOOLEAN_TAG, truth)
    want = [AttributeValue(boolean=bool(v)).SerializeToString() for v in values]
    assert rows_of(found) == want


@given(st.lists(st.none() | st.text(max_size=300), max_size=20))
def test_texts_and_payloads_are_written_as_by_the_runtime(values: list[str | None]) -> None:
    raw = [(v or "").encode() for v in values]
    off, data = strings_to_column(raw)
    for tag, kind, field in (
        (kernels.TEXT_TAG, AttributeValue, "text"),
        (kernels.JSON_TAG, Payload, "json"),
        (kernels.BYTES_TAG, Payload, "bytes"),
    ):
        contents: list[Any] = raw if field == "bytes" else [b.decode() for b in raw]
        want = [
            b"" if v is None else kind(**{field: content}).SerializeToString()
            for v, content in zip(values, contents, strict=True)
        ]
        assert rows_of(kernels.encode_bytes(tag, flags(values), sealed(off), sealed(data))) == want


VALUES = st.one_of(
    st.none(),
    INT64.map(lambda v: AttributeValue(integer=v)),
    st.sampled_from([0, 1, 10, 120, 127, 130, 1024]).map(lambda n: AttributeValue(text="x" * n)),
)


def cut_into_parts(table: dict[str, list[Any]]) -> list[tuple[str, list[Any]]]:
    """Each column in two parts, of its integers and of its texts, as those of a union."""
    return [
        (name, [one if one is not None and one.HasField("text") == is_text else None for one in v])
        for name, v in table.items()
        for is_text in (False, True)
    ]


@given(
    st.sets(st.text(min_size=1, max_size=30) | st.just("long" * 32), max_size=5),
    st.integers(0, 6),
    st.data(),
)
def test_attributes_are_joined_in_the_order_of_names(
    names: set[str], rows: int, data: st.DataObject
) -> None:
    table = {
        name: data.draw(st.lists(VALUES, min_size=rows, max_size=rows))
        for name in sorted(names, key=str.encode)
    }
    parts = data.draw(st.permutations(cut_into_parts(table)))
    taken = [(i, one) for _, values in parts for i, one in enumerate(values) if one is not None]
    row = np.array([i for i, _ in taken], np.int64)
    sizes = [sum(one is not None for one in values) for _, values in parts]
    order = sorted(range(len(parts)), key=lambda p: parts[p][0].encode())
    name_off, name = strings_to_column([name for name, _ in parts])
    value_off, value = strings_to_column([one.SerializeToString() for _, one in taken])
    part_off = np.append(0, np.cumsum(sizes)).astype(np.int64)
    found = kernels.join_attributes(
        sealed(name_off), sealed(name), sealed(np.array(order, np.int64)), sealed(part_off),
        sealed(row), sealed(value_off), sealed(value), rows,
    )  # fmt: skip
    want = [
        {name: one for name, values in table.items() if (one := values[i]) is not None}
        for i in range(rows)
    ]
    assert rows_of(found) == [encode_in_order(Attributes(values=values)) for values in want]


@given(st.sets(st.text("ab", min_size=1, max_size=3)), st.sets(st.text(min_size=1)))
def test_names_rise_where_the_runtime_has_another_order(short: set[str], long: set[str]) -> None:
    one = AttributeValue(integer=1)
    for names in (short, long):
        made = Attributes(values=dict.fromkeys(names, one))
        entries = b"".join(
            Attributes(values={name: one}).SerializeToString()
            for name in sorted(names, key=str.encode)
        )
        assert encode_in_order(made) == entries
