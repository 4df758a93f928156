"""Validity as notes behind programs, and ends in sources."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.language.expression import compile_column
from ps2stream.language.literals import WatchedLiterals
from ps2stream.language.query_rows import build_rows, describe
from ps2stream.protocol.frame import FrameError, strings_to_column
from ps2stream.protocol.programs import find_program_end
from ps2stream.protocol.rows import QueryRows
from ps2stream.protocol.validity import (
    add_validity,
    find_validity,
    has_validity,
    stamp_inserts,
)
from ps2stream.space.regions import Rect, World
from tests.support.ends import ANALYZER, FREQUENCIES

TEXTS = ["", "flood", "a OR b", 'x AND "rising water"', "mag > 3 AND fl* AND NOT a", "a AND NOT b"]
TIMES = st.one_of(st.just(0), st.integers(1, (1 << 63) - 1))


def build(texts: list[str], regions: list[Rect | World]) -> QueryRows:
    typed = strings_to_column([f" {text}" for text in texts])
    compiled = compile_column(*strings_to_column(texts), ANALYZER, FREQUENCIES)
    assert not compiled.errors
    ids = strings_to_column([f"q{i}" for i in range(len(texts))])
    return build_rows(ids, compiled, regions, typed)


def programs(rows: QueryRows) -> list[list[int]]:
    """The program of each row, without notes."""
    find_end: Any = find_program_end
    ends = [int(find_end.py_func(rows.prog, a, b)) for a, b in pairwise(rows.prog_off)]
    return [rows.prog[a:b].tolist() for a, b in zip(rows.prog_off, ends, strict=False)]


@given(st.lists(st.tuples(st.sampled_from(TEXTS), TIMES, st.booleans()), max_size=8), TIMES)
def test_validity_comes_back_and_changes_nothing_else(
    queries: list[tuple[str, int, bool]], now_ms: int
) -> None:
    texts = [text for text, _, _ in queries]
    regions: list[Rect | World] = [World() if text else Rect(1, 2, 3, 4) for text in texts]
    bare = build(texts, regions)
    until = np.array([end for _, end, _ in queries], np.int64)
    retro = np.array([wants for _, _, wants in queries], np.bool_)
    rows = add_validity(bare, until, retro)
    expected = [i for i, (_, end, wants) in enumerate(queries) if end or wants]
    stamped = stamp_inserts(rows, now_ms)
    for some, time in ((rows, 0), (stamped, now_ms), (QueryRows.decode(stamped.encode()), now_ms)):
        encoded = np.frombuffer(some.encode(), np.uint8)
        assert has_validity(encoded) == bool(expected)
        found = find_validity(some)
        assert found.row.tolist() == expected
        assert found.until.tolist() == until[expected].tolist()
        assert found.inserted.tolist() == [time] * len(expected)
        assert found.retro.tolist() == retro[expected].tolist()
        assert programs(some) == programs(bare)
        mine, theirs = WatchedLiterals.of(some), WatchedLiterals.of(bare)
        assert mine.term.tolist() == theirs.term.tolist()
        assert mine.kind.tolist() == theirs.kind.tolist()
    sources = bare.source.tobytes(), rows.source.tobytes()
    for i, (a, b) in enumerate(pairwise(bare.source_off)):
        c, d = rows.source_off[i : i + 2]
        before, after = describe(sources[0][a:b]), describe(sources[1][c:d])
        assert after == before._replace(until=until[i])
        assert (sources[0][a:b] == sources[1][c:d]) == (until[i] == 0)


def test_offsets_beyond_the_programs_have_no_notes() -> None:
    """A damaged frame is refused by who decodes its rows; nothing beyond it is read meanwhile."""
    rows = add_validity(build(["a AND NOT b"], [World()]), np.ones(1, np.int64), np.ones(1, bool))
    for off in ([0, 1 << 40], [-(1 << 40), 5], [0, -5], [1 << 40, 0]):
        damaged = rows.replace(prog_off=np.array(off))
        assert not has_validity(np.frombuffer(damaged.encode(), np.uint8))
    whole = np.frombuffer(rows.encode(), np.uint8)
    assert has_validity(whole)
    at = QueryRows.head_bytes()
    for size in (at, at + 8):
        with pytest.raises(FrameError, match="cut short"):
            has_validity(whole[:size])


def test_rows_without_validity_stay_the_same_objects() -> None:
    rows = build(["flood"], [World()])
    assert add_validity(rows, np.zeros(1, np.int64), np.zeros(1, np.bool_)) is rows
    assert stamp_inserts(rows, 5) is rows
    assert not len(find_validity(rows).row)
