"""The compaction of a ledger, against a loop over its rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.sequencer.feed import find_left_out
from ps2stream.store import compaction
from ps2stream.store.compaction import compact_log, find_outlived
from tests.support.routing import Row, query_rows


def make_batch(
    first: int, updates: list[tuple[UpdateKind, int]], strategy: bytes = b"", sessions: bytes = b""
) -> LedgerBatch:
    """A batch of inserts and deletes, each with the handle of its query."""
    rows = [
        Row((handle,), (0,), (), kind, first + i, handle)
        for i, (kind, handle) in enumerate(updates)
    ]
    encoded = np.frombuffer(query_rows(rows).encode(), np.uint8)
    end = first + max(len(updates), 1) - 1
    plan, tables = np.frombuffer(strategy, np.uint8), np.frombuffer(sessions, np.uint8)
    return LedgerBatch(first, end, 0, 0, 0, encoded, plan, tables)


def is_change(batch: LedgerBatch) -> bool:
    return len(batch.strategy) + len(batch.sessions) > 0


def make_history(seed: int, size: int, updates: int) -> tuple[list[LedgerBatch], set[int]]:
    """Batches of up to `size` updates, and now and then a change of the plan or of the tables of
    sessions; and the live handles."""
    rng = np.random.default_rng(seed)
    log: list[LedgerBatch] = []
    live: list[int] = []
    lsn = 1
    while lsn <= updates:
        if rng.random() < 0.01:
            records = (b"plan", b"") if rng.random() < 0.5 else (b"", b"sessions")
            log.append(make_batch(lsn, [], *records))
            lsn += 1
            continue
        some: list[tuple[UpdateKind, int]] = []
        for i in range(int(rng.integers(1, size + 1))):
            if len(live) > 5 and rng.random() < 0.5:
                some.append((UpdateKind.DELETE, live.pop(int(rng.integers(len(live))))))
            else:
                some.append((UpdateKind.INSERT, lsn + i))
                live.append(lsn + i)
        log.append(make_batch(lsn, some))
        lsn += len(some)
    return log, set(live)


def list_rows(log: list[LedgerBatch]) -> Iterator[tuple[int, int, int]]:
    """(LSN, kind, handle) of each row."""
    for batch in log:
        rows = QueryRows.decode(batch.rows.data)
        yield from zip(rows.lsn.tolist(), rows.kind.tolist(), rows.handle.tolist(), strict=True)


@pytest.mark.parametrize("size", [1, 40])
@pytest.mark.parametrize("seed", range(4))
def test_what_lives_is_left_in_order_and_changes_stand_alone(
    seed: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "MIN_ROWS", 100)
    log, _ = make_history(seed, size, 2_000)
    watermark = 1_500
    outlived = find_outlived(log, watermark)
    rows = list(list_rows(log))
    dead = {h for lsn, kind, h in rows if kind == UpdateKind.DELETE and lsn <= watermark}
    assert outlived.tolist() == sorted(dead)
    compacted = list(compact_log(log, outlived))
    assert [row for row in rows if row[2] not in dead] == list(list_rows(compacted))
    last = 0
    for batch in compacted:
        assert batch.lsn_from == last + 1
        last = batch.lsn_to
        lost = [lsn for lsn, _, h in rows if h in dead and batch.lsn_from <= lsn <= last]
        assert batch.until == max(lost, default=0)
        assert find_left_out(batch, QueryRows.decode(batch.rows.data)) == batch.until
    assert last == log[-1].lsn_to
    changes, kept = (
        [(b.lsn_from, b.lsn_to, b.strategy.tobytes(), b.sessions.tobytes()) for b in some]
        for some in (filter(is_change, log), filter(is_change, compacted))
    )
    assert kept == changes
    assert size > 1 or {bool(plans) for _, _, plans, _ in changes} == {False, True}
    full = sum(len(QueryRows.decode(b.rows.data)) > 0 for b in compacted)
    assert len(compacted) <= full + 2 * len(changes) + 1


@pytest.mark.takes_turns
def test_nothing_is_left_of_a_long_history_but_what_lives() -> None:
    """One batch for each update, as of a client that sends one at a time."""
    log, live = make_history(1, 1, 20_000)
    outlived = find_outlived(log, 20_001)
    compacted = list(compact_log(log, outlived))
    kept = {h for _, _, h in list_rows(compacted)}
    assert kept == live
    before, after = (sum(len(b.encode()) for b in some) for some in (log, compacted))
    assert after < before / 40
