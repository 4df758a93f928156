"""The sequencer's tenants: pages and counts of each, and quotas that hold over restarts."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream import tenants
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.messages.updates import LookupReply, LookupRequest, UpdateStatus
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.security import QuotaTable, TenantQuota
from ps2stream.sequencer.machine import SequencerMachine
from ps2stream.sequencer.tenants import TenantCounts
from ps2stream.store.memory import MemoryStore
from tests.support.sequencing import (
    TwinSequencer,
    answers,
    granted,
)
from tests.support.updates import Row, delete, ids_of, insert, replace, update

QUOTAS = QuotaTable(
    by_tenant={"small": TenantQuota(queries=3, sessions=2), "tiny": TenantQuota(sessions=1)}
)
TENANTS = ("", "small", "tiny", "free")
SEQ = itertools.count(1)  # a request of the same number is a repeat


def rows_of(tenant: str) -> st.SearchStrategy[Row]:
    ids = st.sampled_from([tenants.under(tenant, c) for c in "abcdef"])
    sessions = st.sampled_from([tenants.under(tenant, c) for c in "stu"])
    return st.one_of(
        st.builds(insert, ids, st.sampled_from(["x", "yy"]), sessions),
        st.builds(
            replace,
            ids,
            st.sampled_from(["x", "yy", "z"]),
            sessions,
            st.sampled_from(["", "p", "q"]),
        ),
        st.builds(delete, ids, st.just(""), st.just("")),
    )


def page(machine: SequencerMachine, tenant: bytes, limit: int = 100) -> tuple[list[str], int]:
    """The ids that a listing gives, page by page, and the count with it."""
    found: list[str] = []
    after, more, live = 0, 1, 0
    blank = np.zeros(0, np.uint8)
    while more:
        ask = LookupRequest(0, 1, 0, after, limit, blank, np.frombuffer(tenant, np.uint8))
        [send] = machine.on(ask)
        assert isinstance(send.frame, LookupReply)
        rows = QueryRows.decode(send.frame.rows.data)
        found += ids_of(rows)
        more, live = send.frame.more, send.frame.live
        after = int(rows.handle[-1]) if len(rows) else 0
    return found, live


@pytest.mark.takes_turns
@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        st.lists(st.one_of(*map(rows_of, TENANTS)), max_size=12).map(
            lambda rows: [rows[:5], rows[5:]]
        ),
        max_size=8,
    ),
    st.data(),
)
def test_quotas_hold_and_touch_nobody_else(
    commits: list[list[list[Row]]], data: st.DataObject
) -> None:
    store, twin = MemoryStore(), TwinSequencer()
    machine = SequencerMachine([Address("dispatcher", 0)], store, quotas=QUOTAS)
    sessions: dict[str, set[str]] = {tenant: set() for tenant in TENANTS}
    for requests in commits:
        before = Counter(i.rpartition("\0")[0] for i in twin.live)
        rows = [row for part in requests for row in part]
        asked = Counter(r[1].rpartition("\0")[0] for r in rows if r[0] != UpdateKind.DELETE)
        said = answers(machine.append([update(part, next(SEQ)) for part in requests]))
        for row, (status, lsn) in zip(rows, said, strict=True):
            tenant = row[1].rpartition("\0")[0]
            if status in (UpdateStatus.QUERY_QUOTA, UpdateStatus.SESSION_QUOTA):
                quota = QUOTAS.of(tenant)
                assert (row[0] != UpdateKind.DELETE, lsn) == (True, 0)
                if row[0] == UpdateKind.REPLACE:
                    assert row[1] not in twin.live or twin.live[row[1]][1] != row[2]
                    assert (row[1], row[4]) not in twin.known
                    assert row[5] == 0  # what makes no query more needs no room
                if status == UpdateStatus.QUERY_QUOTA:
                    assert before[tenant] + asked[tenant] > (quota.queries or 0)
                assert tenant in ("small", "tiny")
                continue
            is_repeat = bool(row[4]) and (row[1], row[4]) in twin.known
            assert twin.decide(row) == (status, lsn)
            if row[0] != UpdateKind.DELETE and status == UpdateStatus.OK and not is_repeat:
                sessions[tenant].add(row[2])
        if data.draw(st.booleans()):
            machine = SequencerMachine([Address("dispatcher", 0)], store, quotas=QUOTAS)
            twin.restart()
        for tenant in TENANTS:
            mine = [i for i in twin.live if i.rpartition("\0")[0] == tenant]
            by_handle = sorted(mine, key=lambda i: twin.live[i][0])
            limit = data.draw(st.integers(1, 4))
            assert page(machine, tenants.key(tenant), limit) == (by_handle, len(mine))
            quota = QUOTAS.of(tenant)
            assert quota.queries is None or len(mine) <= quota.queries
            assert quota.sessions is None or len(sessions[tenant]) <= quota.sessions
    assert page(machine, b"")[1] == len(twin.live)
    assert page(machine, b"nobody\0") == ([], 0)


def test_sessions_that_streams_make_count_too() -> None:
    store = MemoryStore()
    machine = SequencerMachine([Address("dispatcher", 0)], store, quotas=QUOTAS)
    assert [granted(machine, f"small\0{c}") for c in "abca"] == [1, 2, -2, 1]
    machine = SequencerMachine([Address("dispatcher", 0)], store, quotas=QUOTAS)
    assert granted(machine, "small\0c") == -2
    said = answers(machine.append([update([insert("small\0q", "x", "small\0c")], next(SEQ))]))
    assert said == [(UpdateStatus.SESSION_QUOTA, 0)]
    assert [granted(machine, c) for c in "abc"] == [3, 4, 5]


def test_a_full_tenant_has_room_again_after_a_delete() -> None:
    machine = SequencerMachine([Address("dispatcher", 0)], MemoryStore(), quotas=QUOTAS)
    rows = [insert(f"small\0{i}", "x", "small\0s") for i in range(5)]
    said = answers(machine.append([update(rows, next(SEQ))]))
    assert [status for status, _ in said] == [UpdateStatus.OK] * 3 + [UpdateStatus.QUERY_QUOTA] * 2
    assert answers(machine.append([update([rows[0], rows[4]], next(SEQ))])) == [
        (UpdateStatus.OK, 1), (UpdateStatus.QUERY_QUOTA, 0),
    ]  # fmt: skip
    machine.append([update([delete("small\0" + "0")], next(SEQ))])
    assert answers(machine.append([update([rows[4]], next(SEQ))])) == [(UpdateStatus.OK, 5)]


def test_a_full_tenant_may_replace_its_queries() -> None:
    machine = SequencerMachine([Address("dispatcher", 0)], MemoryStore(), quotas=QUOTAS)

    def row(id: int, source: str, request: str = "") -> Row:
        return replace(f"small\0{id}", source, "small\0s", request)

    def said(*rows: Row) -> list[tuple[UpdateStatus, int]]:
        return answers(machine.append([update(rows, next(SEQ))]))

    assert said(row(1, "x"), row(2, "x"), row(3, "x", "p"), row(3, "yy")) == [
        (UpdateStatus.OK, lsn) for lsn in (1, 2, 3, 4)
    ]
    assert said(row(1, "yy"), row(4, "x"), row(4, "yy"), row(1, "z")) == [
        (UpdateStatus.OK, 5), (UpdateStatus.QUERY_QUOTA, 0),
        (UpdateStatus.QUERY_QUOTA, 0), (UpdateStatus.OK, 6),
    ]  # fmt: skip
    full = [delete("small\0" + "3"), row(4, "x"), row(3, "x", "p"), row(3, "x")]
    # What the third row asks was done, so it needs no room; the others are new queries.
    assert said(*full) == [
        (UpdateStatus.OK, 7), (UpdateStatus.QUERY_QUOTA, 0),
        (UpdateStatus.OK, 3), (UpdateStatus.QUERY_QUOTA, 0),
    ]  # fmt: skip
    assert machine.live == 2
    assert said(row(4, "x"), row(5, "x")) == [(UpdateStatus.OK, 8), (UpdateStatus.QUERY_QUOTA, 0)]


def test_sessions_are_counted_by_their_tenants() -> None:
    """Two of the tenant a, which may have two, one of the default tenant."""
    counts = TenantCounts(QuotaTable(by_tenant={"a": TenantQuota(sessions=2)}))
    own = [tenants.under("a", name).encode() for name in ("x", "y")]
    counts.name_sessions([(1, own[0]), (2, own[1]), (3, b"z")])
    assert np.flatnonzero(counts.sessions_of(tenants.key("a"))).tolist() == [1, 2]
    assert counts.session_limit(tenants.under("a", "w").encode()) == 2
    assert counts.session_limit(b"w") == 0
