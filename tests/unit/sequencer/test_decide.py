"""Decisions about the rows of requests, against a twin that takes them one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.expression import compile_column
from ps2stream.language.query_rows import build_rows
from ps2stream.protocol.frame import column_to_strings, strings_to_column
from ps2stream.protocol.messages.updates import UpdateStatus
from ps2stream.protocol.rows import QueryRows, UpdateKind, no_queries
from ps2stream.sequencer.decide import UpdateVerdict, decide
from ps2stream.sequencer.machine import SequencerMachine
from ps2stream.sequencer.registry import QueryRegistry, encode
from ps2stream.sequencer.remembered import RememberedUpdates
from ps2stream.space.regions import World
from ps2stream.store.memory import MemoryStore
from tests.support.sequencing import (
    ROWS,
    TwinSequencer,
    applied_rows,
    cut_hashes,
)
from tests.support.updates import (
    DISPATCHERS,
    Row,
    delete,
    ids_of,
    insert,
    query_rows,
    replace,
    update,
)


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


@pytest.mark.takes_turns
@pytest.mark.parametrize("bits", [8, 64])
@settings(deadline=None, max_examples=150)
@given(groups=st.lists(st.lists(ROWS, max_size=8), max_size=8))
def test_rows_are_decided_together_as_one_by_one(bits: int, groups: list[list[Row]]) -> None:
    with cut_hashes(bits):
        check_against_the_twin(groups)


def test_many_rows_are_decided_together_as_one_by_one() -> None:
    """Batches of hundreds of rows, of more ids than there are hashes."""
    rng = np.random.default_rng(5)

    def draw() -> Row:
        id, session = f"id-{rng.integers(700)}", str(rng.choice(["s", "t", "u"]))
        if rng.random() < 0.6:
            source = "z" * int(rng.integers(1, 3))
            if rng.random() < 0.5:
                return insert(id, source, session)
            if_lsn = int(rng.integers(1, 4_000)) if rng.random() < 0.3 else 0
            return replace(id, source, session, str(rng.choice(["", "p", "r"])), if_lsn)
        named = session if rng.random() < 0.5 else ""
        return delete(id, named, str(rng.choice(["", "p", "q"])))

    with cut_hashes(8):
        check_against_the_twin([[draw() for _ in range(rng.integers(1, 512))] for _ in range(30)])


def check_against_the_twin(groups: list[list[Row]]) -> None:
    twin, live = TwinSequencer(), QueryRegistry()
    sessions: dict[bytes, int] = {}
    recent = RememberedUpdates([], 100_000)
    for rows in groups:
        before, logged = twin.lsn, len(twin.log)
        want = [twin.decide(row) for row in rows]
        verdict = decide(
            encode(query_rows(rows)),
            strings_to_column(row[2] for row in rows),
            strings_to_column(row[4] for row in rows),
            base=before,
            live=live,
            sessions=sessions,
            top=max(sessions.values(), default=0),
            recent=recent,
        )
        status = map(UpdateStatus, verdict.status.tolist())
        assert list(zip(status, verdict.lsn.tolist(), strict=True)) == want
        out = QueryRows.decode(verdict.rows.data) if verdict.committed else no_queries()
        columns = out.lsn.tolist(), out.kind.tolist(), out.handle.tolist(), ids_of(out)
        assert list(zip(*columns, strict=True)) == twin.log[logged:]
        assert list_durable(verdict) == list_changing(rows, want, before)
        live.apply_prepared(verdict.prepared)
        assert not verdict.sessions.keys() & sessions.keys()
        sessions |= verdict.sessions
        recent.add(verdict.requests)
        names = {name for _, name, _ in twin.live.values()}
        assert names <= {name.decode() for name in sessions}
    assert len({*sessions.values()}) == len(sessions)
    assert len(live) == len(twin.live)


def list_durable(verdict: UpdateVerdict) -> list[tuple[int, str, str]]:
    """LSN, id and request id of what the ledger remembers."""
    if (named := verdict.durable) is None:
        return []
    ids = column_to_strings(named.id_off, named.id)
    asked = column_to_strings(named.request_off, named.request)
    return list(zip(named.lsn.tolist(), ids, asked, strict=True))


def list_changing(
    rows: list[Row], decisions: list[tuple[UpdateStatus, int]], highest: int
) -> list[tuple[int, str, str]]:
    """LSN, id and request id of the rows with one that changed something."""
    found = []
    for row, id, (_, lsn) in zip(rows, ids_of(query_rows(rows)), decisions, strict=True):
        if lsn > highest and row[4]:
            found.append((lsn, id, row[4]))
        highest = max(highest, lsn)
    return found


def decided(rows: list[Row], live: QueryRegistry, base: int) -> UpdateVerdict:
    return decide(
        encode(query_rows(rows)),
        strings_to_column(row[2] for row in rows),
        strings_to_column(row[4] for row in rows),
        base=base,
        live=live,
        sessions={b"s": 1},
        top=1,
        recent=RememberedUpdates([], 10),
    )


def test_a_decision_changes_nothing() -> None:
    live = QueryRegistry()
    live.apply(query_rows([insert("a")], 1))
    rows = [delete("a"), insert("b", session="new")]
    first, second = (decided(rows, live, 1) for _ in range(2))
    assert first.rows.tobytes() == second.rows.tobytes()
    assert first.sessions == {b"new": 2}
    assert live.handles(*strings_to_column(["a", "b"])).tolist() == [1, 0]


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
    names, none = strings_to_column(["s"] * 2), strings_to_column([""] * 2)
    recent = RememberedUpdates([], 10)
    verdict = decide(
        encode(again), names, none, base=1, live=live, sessions={b"s": 1}, top=1, recent=recent
    )
    assert verdict.status.tolist() == [UpdateStatus.OK, UpdateStatus.ALREADY_EXISTS]
    assert verdict.lsn.tolist() == [1, 0]
    assert verdict.committed == 0
