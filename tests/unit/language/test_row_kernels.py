"""Ids, and the sources of queries byte by byte, against twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.language import row_kernels as kernels
from ps2stream.protocol.frame import I64, U8
from ps2stream.protocol.rows import RegionShape

ROWS = st.lists(
    st.tuples(
        st.sampled_from(RegionShape),
        st.lists(st.floats(allow_nan=False), max_size=4),
        st.binary(max_size=6),
        st.none() | st.binary(max_size=6),
    ),
    max_size=9,
)


def ragged(parts: list[bytes]) -> tuple[I64, U8]:
    off = np.cumsum([0, *map(len, parts)])
    return off, np.frombuffer(b"".join(parts), np.uint8)


@pytest.mark.takes_turns
@given(ROWS)
def test_sources_are_those_of_the_twin(
    rows: list[tuple[RegionShape, list[float], bytes, bytes | None]],
) -> None:
    """Without text typed otherwise, a source ends with the canonical one."""
    shape = np.array([row[0] for row in rows], np.uint8)
    geom = [np.array(row[1], "<f8").tobytes() for row in rows]
    canonical = ragged([row[2] for row in rows])
    typed = [row[2] if row[3] is None else row[3] for row in rows]
    written = ragged(typed)
    tails = [
        b"\0" + t if t != row[2] and row[2] else b"" for row, t in zip(rows, typed, strict=True)
    ]
    want = [
        bytes([row[0]]) + g + row[2] + tail for row, g, tail in zip(rows, geom, tails, strict=True)
    ]
    off = np.cumsum([0, *map(len, want)])
    out = np.zeros(off[-1], np.uint8)
    geom_off, words = ragged(geom)
    found = np.full(len(rows) + 1, -1, np.int64)
    kernels.measure_sources(geom_off // 8, *canonical, *written, found)
    assert found.tolist() == off.tolist()
    kernels.write_sources(shape, (geom_off // 8, words), canonical, written, off, out)
    assert out.tobytes() == b"".join(want)


@given(st.lists(st.binary(max_size=4)))
def test_odd_ids_are_counted(ids: list[bytes]) -> None:
    def is_odd(id_: bytes) -> bool:
        return not 1 <= len(id_) <= 3 or 0 in id_ or not id_.isascii()

    assert kernels.count_odd_ids(*ragged(ids), 3) == sum(map(is_odd, ids))
