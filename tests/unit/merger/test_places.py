"""The places of backlogs that a match log holds, found as they were written."""

from __future__ import annotations

import pytest

from tests.support.merging import (
    attach,
    credit,
    inserts,
    one_batch,
    rig,
)


def test_a_long_backlog_is_found_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ps2stream.merger.backlog.BLOCK", 4)
    r = rig()
    r.send(inserts(1, [1, 2]), attach(1, batches=2))
    for b in range(0, 800, 4):
        r.send(*one_batch(b, [(0, 1, 1), (1, 1, 1), (1, 2, 2)], 2))
    r.send(credit(1, 1, 2, 0, 3))
    r.tick(10)
    for epoch in range(2, 5):
        end = r.log.end
        r.restart()
        assert r.log.end == end  # nothing of it is written again
        assert r.machine.held_bytes < 10_000
        r.send(inserts(1, [1, 2]), attach(1, epoch=epoch))
        assert sorted(r.clients[1].pairs) == list(range(1, 401))
    r.send(attach(2))
    assert sorted(r.clients[2].pairs) == list(range(1, 201))
