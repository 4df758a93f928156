"""The kernel of decisions wants sources only where they count; the rest is in test_decide.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ps2stream.protocol.frame import sealed, strings_to_column
from ps2stream.protocol.messages.updates import UpdateStatus
from ps2stream.sequencer.decide_kernels import VerdictColumns, decide_rows
from ps2stream.sequencer.table_kernels import NONE

NO_SOURCES = sealed(np.zeros(1, np.int64)), sealed(np.zeros(0, np.uint8)), sealed(np.zeros(1, int))


def decided(
    kinds: list[int], source: bytes | None, wanted: list[int] | None = None
) -> tuple[tuple[int, int], VerdictColumns]:
    """Updates of the id "a", which session 1 owns with handle 3 at place 9; their source is b"x",
    and that of the query is `source`, if it is given. wanted: the handles that they may replace."""
    n = len(kinds)
    off, ids = (sealed(column) for column in strings_to_column(["a"] * n))
    none, one = np.full(n, NONE), np.ones(n, np.int64)
    update: tuple[Any, ...] = (
        sealed(np.array(kinds, np.uint8)), off, ids, np.zeros(n, np.uint64), off, sealed(one),
        np.zeros(n, np.int64), none, np.array(wanted or [0] * n),
    )  # fmt: skip
    stored = 9 * one, 3 * one, one, np.zeros(n, np.int64)

    def sources(of: list[bytes]) -> Any:
        column = strings_to_column(b"\0" + text for text in of)
        return (*(sealed(part) for part in column), sealed(np.zeros(len(of) + 1, np.int64)))

    small, large = np.empty(n, np.uint8), np.empty(n, np.int64)
    verdict = VerdictColumns(
        small, large, small.copy(), np.empty(n, np.uint64), *(large.copy() for _ in range(6))
    )
    stored_sources = NO_SOURCES if source is None else sources([source])
    found = decide_rows(10, update, stored, stored_sources, sources([b"x"] * n), tuple(verdict))
    return found, verdict


@pytest.mark.takes_turns
def test_sources_are_wanted_only_if_an_insert_names_a_live_query() -> None:
    assert decided([1], None)[0] == (NONE, 0)
    found, verdict = decided([2, 1, 2], None)
    assert found == (3, 0)
    assert verdict.out_lsn.tolist() == [11, 12, 13]
    assert verdict.handle.tolist() == [3, 12, 12]
    assert verdict.place.tolist() == [9, NONE, NONE]
    assert verdict.source.tolist() == [NONE, 1, 1]


@pytest.mark.parametrize("source", [b"x", b"x\0typed", b"y", b"xx"])
def test_an_insert_again_is_compared_with_the_query(source: bytes) -> None:
    found, verdict = decided([1], source)
    same = source.split(b"\0")[0] == b"x"
    assert found == (0, 0)
    assert verdict.status.tolist() == [UpdateStatus.OK if same else UpdateStatus.ALREADY_EXISTS]
    assert verdict.lsn.tolist() == [3 if same else 0]


def test_only_the_wanted_query_is_replaced() -> None:
    found, verdict = decided([3, 3, 2, 3, 3], b"y", [4, 3, 0, 11, 0])
    assert found == (4, 0)
    ok, changed = UpdateStatus.OK, UpdateStatus.FAILED_PRECONDITION
    assert verdict.status.tolist() == [changed, ok, ok, changed, ok]
    assert verdict.lsn.tolist() == [0, 11, 12, 0, 13]
    # An equal query is there already.
    found, verdict = decided([3, 1, 3], b"x", [2, 0, 9])
    assert found == (0, 0)
    assert verdict.status.tolist() == [ok] * 3
    assert verdict.lsn.tolist() == [3] * 3
