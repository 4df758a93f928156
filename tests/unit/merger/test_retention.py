"""How long a merger's log keeps what nobody takes: by bytes, by age, by chapters."""

from __future__ import annotations

import pytest

from ps2stream.merger.records import CheckpointRecord
from ps2stream.merger.retention import LogChapter, LogRetention
from tests.support.merging import (
    attach,
    credit,
    fill,
    inserts,
    release,
    rig,
)


@pytest.mark.parametrize(
    "limits", [{"retention_bytes": 12_000}, {"retention_ms": 20_000}], ids=["bytes", "age"]
)
def test_the_oldest_chapter_goes_and_who_needs_it_has_a_gap(limits: dict[str, int]) -> None:
    r = rig(chapter_bytes=3_000, **limits)
    r.send(inserts(1, [1, 2, 3]), attach(2))
    fill(r, 0, 1, 3)
    for at in range(1, 200):
        fill(r, at, 1, 1, 2)
        r.send(credit(2, 1, at, 0, max(r.clients[2].pairs)))
        r.tick(10, ms=100)
    assert r.log.bytes < 24_000
    r.restart()
    r.send(inserts(1, [1, 2, 3]), attach(1, epoch=2), attach(2, epoch=2), attach(3, epoch=2))
    slow, quick, idle = (r.clients[s] for s in (1, 2, 3))
    [(first, _, _)] = slow.gaps
    assert first == 1
    assert len(slow.pairs) > 20
    assert max(slow.pairs) == 2 * 199
    assert slow.gapless()
    assert not quick.gaps
    assert idle.gaps == [(1, 2, 2)]
    assert not idle.pairs


def test_what_is_acknowledged_is_forgotten_but_not_what_was_done() -> None:
    r = rig(chapter_bytes=2_000)
    r.send(inserts(1, [1, 2]), attach(1))
    for at in range(100):
        fill(r, at, 1, 1)
        r.send(credit(1, r.clients[1].epoch, at, 0, max(r.clients[1].pairs)))
        r.tick(10)
        if at % 5 == 4:  # what went is acknowledged for good
            r.restart()
            r.send(inserts(1, [1, 2]), attach(1, epoch=at))
    assert r.log.bytes < 6_000
    kinds = [data[6] == CheckpointRecord.KIND for data in r.log.records.values()]
    assert kinds[0]  # all before a checkpoint went
    r.restart()
    r.kept.clear()
    r.send(inserts(1, [1, 2]), attach(1, epoch=100))
    for at in range(0, 100, 9):
        r.send(release(4 * at, 4, 2, [(0, 1, 1)]))
    assert r.kept == [(0, 4 * at) for at in range(0, 100, 9)]
    fill(r, 100, 1, 1)
    assert sorted(r.clients[1].pairs) == list(range(1, 203))
    assert r.clients[1].repeats == 0


def test_what_one_acknowledgement_lets_go_is_acknowledged_for_good() -> None:
    r = rig(chapter_bytes=1_000)
    r.send(inserts(1, [1, 2]), attach(1))
    for at in range(30):
        fill(r, at, 1, 1)
        r.tick(10)
    r.send(credit(1, 1, 30, 0, 59))
    r.tick(10)
    assert r.log.bytes < 2_000
    r.restart()
    r.send(inserts(1, [1, 2]), attach(1, epoch=2))
    assert r.clients[1].repeats == 1


def test_a_chapter_expires_by_size_or_by_age() -> None:
    """Of three chapters the first is too old, or too far from the end; the last never goes."""
    chapters = [LogChapter(0, 1_000), LogChapter(400, 2_000), LogChapter(800, 3_000)]
    retention = LogRetention(list(chapters), 1_000, 5_000, 400)
    assert retention.find_expired_position(1_000, 7_000) is None
    assert retention.find_expired_position(1_001, 7_000) == 400
    assert retention.find_expired_position(1_000, 7_001) == 400
    assert retention.find_expired_position(9_000, 99_000) == 800
    assert [retention.find_trim_position(at) for at in (0, 399, 400, 900)] == [None, None, 400, 800]
    retention.drop_chapters(800)
    assert not retention.has_old_chapters
