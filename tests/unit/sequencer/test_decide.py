"""Decisions about the rows of requests, against a twin that takes them one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.expression import compile_column
from ps2stream.language.query_rows import build_rows
from ps2stream.protocol.frame import column_to_strings, strings_to_column
from ps2stream.protocol.messages.updates import UpdateStatus
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.sequencer.decide import UpdateVerdict, decide
from ps2stream.sequencer.machine import SequencerMachine
from ps2stream.sequencer.registry import QueryRegistry
from ps2stream.space.regions import World
from ps2stream.store.memory import MemoryStore
from tests.support.sequencing import (
    ROWS,
    TwinSequencer,
    applied_rows,
)
from tests.support.updates import DISPATCHERS, Row, delete, ids_of, insert, query_rows, update


def test_a_delete_carries_its_insert_but_not_the_source() -> None:
    machine = SequencerMachine(DISPATCHERS[:1], MemoryStore())
    rows = [insert(str(i), "body" * i) for i in range(1, 9)]
    machine.append([update(rows)])
    sends = machine.append([update([delete("5"), insert("9"), delete("2")], 2)])
    [(_, out)] = applied_rows(sends)
    assert ids_of(out) == ["5", "9", "2"]
    assert out.kind.tolist() == [UpdateKind.DELETE, UpdateKind.INSERT, UpdateKind.DELETE]
    assert out.lsn.tolist() == [9, 10, 11]
    assert out.handle.tolist() == [5, 10, 2]
    assert column_to_strings(out.source_off, out.source) == ["", "body", ""]
    want = query_rows([insert("5", "body" * 5), insert("9"), insert("2", "body" * 2)])
    for name in ("id", "term", "prog", "box", "geom"):
        np.testing.assert_array_equal(getattr(out, name), getattr(want, name))
        np.testing.assert_array_equal(getattr(out, name + "_off"), getattr(want, name + "_off"))
    for name in ("form", "post", "shape"):
        np.testing.assert_array_equal(getattr(out, name), getattr(want, name))


@settings(deadline=None, max_examples=150)
@given(st.lists(st.lists(ROWS, max_size=8), max_size=8))
def test_rows_are_decided_together_as_one_by_one(groups: list[list[Row]]) -> None:
    twin, live = TwinSequencer(), QueryRegistry()
    sessions: dict[bytes, int] = {}
    recent: dict[tuple[bytes, bytes], int] = {}
    for rows in groups:
        before, want = twin.lsn, [twin.decide(row) for row in rows]
        verdict = decide(
            query_rows(rows),
            [row[2].encode() for row in rows],
            [row[4].encode() for row in rows],
            base=before,
            live=live,
            sessions=sessions,
            top=max(sessions.values(), default=0),
            recent=recent,
        )
        status = map(UpdateStatus, verdict.status.tolist())
        assert list(zip(status, verdict.lsn.tolist(), strict=True)) == want
        out = verdict.rows
        columns = out.lsn.tolist(), out.kind.tolist(), out.handle.tolist(), ids_of(out)
        assert list(zip(*columns, strict=True)) == twin.log[before:]
        live.apply(out)
        assert not verdict.sessions.keys() & sessions.keys()
        sessions |= verdict.sessions
        recent |= verdict.requests
        names = {name for _, name, _ in twin.live.values()}
        assert names <= {name.decode() for name in sessions}
    assert len({*sessions.values()}) == len(sessions)
    assert len(live) == len(twin.live)


def decided(rows: list[Row], live: QueryRegistry, base: int) -> UpdateVerdict:
    return decide(
        query_rows(rows),
        [row[2].encode() for row in rows],
        [row[4].encode() for row in rows],
        base=base,
        live=live,
        sessions={b"s": 1},
        top=1,
        recent={},
    )


def test_a_decision_changes_nothing() -> None:
    live = QueryRegistry()
    live.apply(query_rows([insert("a")], 1))
    rows = [delete("a"), insert("b", session="new")]
    first, second = (decided(rows, live, 1) for _ in range(2))
    assert first.rows.encode() == second.rows.encode()
    assert first.sessions == {b"new": 2}
    assert live.handles([b"a", b"b"]).tolist() == [1, 0]


def typed(id: str, text: str) -> QueryRows:
    """An insert as a client wrote it, of session 1."""
    analyzer = Analyzer(Analysis(salt=3))
    column = strings_to_column([text])
    compiled = compile_column(*column, analyzer, Frequencies.of({}, analyzer))
    return build_rows(strings_to_column([id]), compiled, [World()], column).replace(
        session=np.ones(1, np.int64)
    )


def test_a_query_that_is_typed_differently_is_the_same_one() -> None:
    live = QueryRegistry()
    live.apply(typed("a", "storm AND rain").replace(lsn=np.ones(1, int), handle=np.ones(1, int)))
    again = QueryRows.concat([typed("a", "rain  storm"), typed("a", "rain OR storm")])
    verdict = decide(
        again, [b"s"] * 2, [b""] * 2, base=1, live=live, sessions={b"s": 1}, top=1, recent={}
    )
    assert verdict.status.tolist() == [UpdateStatus.OK, UpdateStatus.ALREADY_EXISTS]
    assert verdict.lsn.tolist() == [1, 0]
    assert len(verdict.rows) == 0
