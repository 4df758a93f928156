"""The kernels that check the rows of a publication, against Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.protocol.frame import sealed
from ps2stream.service.object_row_kernels import are_within, find_offsets

LIMITS = 180.0, 90.0, 4, 8
EDGES = ["", "a", "\x7f", "\x80", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000"]
DAMAGED = [
    b"\x80", b"\xc1\x80", b"\xc2", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xe2\x82",
    b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff",
    b"\xc2\xc2", b"\xe2\x82\x28", b"\xf0\x90\x28\x80", b"\xf0\x90\x80\x28",
]  # fmt: skip


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def find(raw: list[int], text: bytes, dtype: type = np.int32) -> list[int]:
    column = sealed(np.array(raw, dtype))
    found: list[int] = find_offsets(column, sealed(np.frombuffer(text, np.uint8))).tolist()
    return found


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@given(
    rows=st.lists(
        st.sampled_from([each.encode() for each in EDGES] + ["\U0010ffff".encode()])
        | st.sampled_from(DAMAGED)
        | st.binary(max_size=6)
        | st.text(max_size=4).map(lambda text: text.encode("utf-8", "surrogatepass")),
        max_size=4,
    ),
    before=st.binary(max_size=2),
    behind=st.binary(max_size=2),
)
def test_strings_are_good_if_each_is_utf8(
    dtype: type, rows: list[bytes], before: bytes, behind: bytes
) -> None:
    off = list(itertools.accumulate(map(len, rows), initial=0))
    found = find([len(before) + at for at in off], before + b"".join(rows) + behind, dtype)
    assert found == (off if all(map(is_utf8, rows)) else [])


@pytest.mark.parametrize("damaged", DAMAGED)
def test_a_string_that_is_not_utf8_is_found_behind_a_good_one(damaged: bytes) -> None:
    assert find([0, 2, 2 + len(damaged)], "\u00e9".encode() + damaged) == []


@pytest.mark.parametrize("raw", [[-1, 0], [0, 4], [0, 2, 1, 3], [2, 1], [1, -1, 2]])
def test_offsets_must_rise_within_the_text(raw: list[int]) -> None:
    assert find([0, 1, 1, 3], b"abc") == [0, 1, 1, 3]
    assert find(raw, b"abc") == []


@given(
    lon=st.sampled_from([0.0, 180.0, -180.0, 180.1, -180.1, float("nan"), float("inf")]),
    lat=st.sampled_from([0.0, 90.0, -90.0, 90.1, -90.1, float("nan"), float("-inf")]),
    of_id=st.integers(3, 5),
    of_text=st.integers(7, 9),
)
def test_rows_are_within_if_each_is(lon: float, lat: float, of_id: int, of_text: int) -> None:
    found = are_within(
        sealed(np.array([0.0, lon, 0.0])),
        sealed(np.array([0.0, lat, 0.0])),
        sealed(np.array([0, 1, 1 + of_id, 1 + of_id])),
        sealed(np.array([0, 0, of_text, of_text])),
        LIMITS,
    )
    assert found == (abs(lon) <= 180 and abs(lat) <= 90 and of_id <= 4 and of_text <= 8)
