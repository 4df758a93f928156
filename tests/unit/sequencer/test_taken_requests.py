"""Requests are taken as they came where nobody reads their rows, and otherwise joined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.protocol.frame import FrameError, column_to_strings
from ps2stream.protocol.messages.updates import UpdateRequest
from ps2stream.protocol.rows import QueryRows
from ps2stream.protocol.validity import add_validity, find_validity
from ps2stream.security import QuotaTable, TenantQuota
from ps2stream.sequencer.machine import SequencerMachine
from ps2stream.sequencer.registry import encode
from ps2stream.sequencer.taken_requests import take_requests
from ps2stream.store.memory import MemoryStore
from tests.support.sequencing import ROWS, TwinSequencer, answers
from tests.support.updates import DISPATCHERS, Row, delete, insert, query_rows, update


def plain(rows: list[Row], seq: int = 1) -> UpdateRequest:
    """A request of rows without programs."""
    table = query_rows(rows)
    bare = table.replace(prog=np.zeros(0, np.int16), prog_off=np.zeros(len(rows) + 1, np.int64))
    return with_rows(update(rows, seq), bare)


def with_rows(request: UpdateRequest, rows: QueryRows) -> UpdateRequest:
    return UpdateRequest(**vars(request) | {"rows": encode(rows)})


def test_one_request_stays_as_it_came() -> None:
    request = plain([insert("a"), delete("b", "s", "r")])
    taken = take_requests([request], 5)
    assert taken.rows is request.rows
    assert (taken.counts, taken.read) == ([2], None)
    assert column_to_strings(*taken.names) == ["s", "s"]
    assert column_to_strings(*taken.request_ids) == ["", "r"]
    read = take_requests([request], 5, is_read=True)
    assert read.rows is request.rows
    assert read.read is not None
    assert len(read.read) == 2


def test_several_requests_are_joined() -> None:
    parts = [[insert("a"), delete("b", "s", "r")], [insert("c", "more", "t")]]
    taken = take_requests([plain(rows) for rows in parts], 5)
    whole = plain(parts[0] + parts[1])
    assert taken.rows.tobytes() == whole.rows.tobytes()
    assert taken.counts == [2, 1]
    assert column_to_strings(*taken.names) == ["s", "s", "t"]
    assert column_to_strings(*taken.request_ids) == ["", "r", ""]
    less = taken.without(np.array([1]))
    assert less.rows.tobytes() == plain([parts[0][0], parts[1][0]]).rows.tobytes()
    assert column_to_strings(*less.names) == ["s", "t"]
    assert less.counts == [2, 1]


def test_a_validity_is_stamped() -> None:
    request = plain([insert("a"), insert("b")])
    table, retro = QueryRows.decode(request.rows.data), np.array([False, True])
    rows = add_validity(table, np.zeros(2, np.int64), retro)
    taken = take_requests([with_rows(request, rows)], 77)
    assert taken.read is not None
    for stamped in (taken.read, QueryRows.decode(taken.rows.data)):
        found = find_validity(stamped)
        assert (found.row.tolist(), found.inserted.tolist()) == ([1], [77])


@pytest.mark.parametrize("size", [0, 20, 300, 400])
def test_damaged_rows_are_an_error(size: int) -> None:
    machine = SequencerMachine(DISPATCHERS[:1], MemoryStore())
    request = plain([insert("a"), insert("b")])
    short = UpdateRequest(**vars(request) | {"rows": request.rows[:size]})
    with pytest.raises(FrameError):
        machine.append([short])
    fewer = UpdateRequest(**vars(request) | {"rows": plain([insert("a")]).rows})
    with pytest.raises(FrameError, match="1 rows and 2 names"):
        machine.append([fewer])
    assert machine.lsn == 0


@settings(deadline=None, max_examples=60)
@given(groups=st.lists(st.lists(ROWS, max_size=8), max_size=6))
def test_rows_that_nobody_reads_are_decided_alike(groups: list[list[Row]]) -> None:
    """Against a twin, and a machine that reads all rows because somebody has a quota."""
    twin = TwinSequencer()
    stores = MemoryStore(), MemoryStore()
    quotas = QuotaTable({"x": TenantQuota(queries=1)})
    machines: list[Any] = [
        SequencerMachine(DISPATCHERS[:1], stores[0]),
        SequencerMachine(DISPATCHERS[:1], stores[1], quotas=quotas),
    ]
    for seq, rows in enumerate(groups, 1):
        request = plain(rows, seq)
        want = [twin.decide(row) for row in rows]
        assert [answers(machine.append([request])) for machine in machines] == [want, want]
    logs = [[batch.encode() for batch in store.replay()] for store in stores]
    assert logs[0] == logs[1]
