"""The merger machine: what a release waits for, and every pair once through losses and crashes."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ps2stream.merger import subscribers
from ps2stream.merger.machine import SECOND
from ps2stream.protocol import session_numbers
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.frame import Frame
from ps2stream.protocol.messages.objects import ReleasesKept, WatermarkNotice
from ps2stream.protocol.messages.sessions import StreamDetach
from tests.support.merger_world import run
from tests.support.merging import attach, inserts, release, rig


def test_a_release_waits_for_names() -> None:
    r = rig()
    r.send(attach(5, fields=7))
    pairs = [(0, 2, 5), (2, 1, 5), (0, 1, 5)]
    assert r.send(release(0, 3, 2, pairs, number=17)) == []
    assert r.machine.pending == 1
    out = r.send(inserts(1, [5, 5]))
    assert [s.to for s in out] == [Address("dispatcher", 0)] * 2
    assert r.kept == [(0, 17)]
    [batch] = r.clients[5].batches
    assert batch.session_seq == 1
    assert dict(zip(batch.new_handles, batch.new_query_ids, strict=True)) == {1: "q1", 2: "q2"}
    assert list(batch.pair_handles) == [1, 2, 1]
    assert list(batch.pair_objects) == [0, 0, 1]
    assert list(batch.object_ids) == ["o0", "o2"]
    assert list(batch.object_offsets) == [0, 2]
    assert list(batch.text) == ["té0", "té2"]
    assert list(batch.time_ms) == [0, 20]
    assert list(batch.lon) == [0, 0.25]
    assert list(batch.lat) == [0, 0.125]
    assert r.machine.pending == 0


def test_a_release_waits_only_for_names_that_concern_this_merger() -> None:
    r = rig()
    r.send(attach(1), inserts(1, [1]))
    r.send(release(0, 1, 9, [(0, 1, 1)], needs=1, number=4))
    assert r.kept == [(0, 4)], "nothing of 2..9 concerns it"
    assert r.send(release(1, 1, 9, [(0, 3, 1)], needs=3, number=5)) == []
    r.send(WatermarkNotice(0, 0, 0, after=2, lsn=9))
    r.send(WatermarkNotice(0, 0, 0, after=1, lsn=2))
    assert (r.kept, r.machine.applied) == ([(0, 4)], 2)
    r.send(inserts(3, [1]))
    assert r.kept == [(0, 4), (0, 5)]
    assert [pair[0] for pair in r.clients[1].pairs.values()] == ["q1", "q3"]


def test_a_notice_lets_what_waits_go_on() -> None:
    r = rig()
    r.send(inserts(1, [1]), release(0, 1, 9, [(0, 1, 1)], needs=6, number=4))
    r.send(WatermarkNotice(0, 0, 0, after=3, lsn=8))
    assert (r.kept, r.machine.applied) == ([], 1)
    r.send(WatermarkNotice(0, 0, 0, after=1, lsn=8))
    assert (r.kept, r.machine.applied) == ([(0, 4)], 8)
    assert r.others == []


def test_several_releases_are_reported_in_one_message_to_each_dispatcher() -> None:
    r = rig(dispatchers=2)
    r.send(*(release(b, 4, 1, [(0, 1, 1)], dispatcher=b // 8) for b in (0, 4, 8)))
    out = r.send(inserts(1, [1]))
    reports = [(to.index, f) for to, f in out if isinstance(f, ReleasesKept)]
    assert [(at, f.merger, f.release.tolist()) for at, f in reports] == [
        (0, 0, [0, 4]),
        (1, 0, [8]),
    ]


def test_a_report_counts_what_collapsed_of_its_dispatchers_batches() -> None:
    r = rig(dispatchers=2)
    r.send(inserts(1, [1]))
    counts: list[tuple[int, int]] = []
    for at, again in ((0, 3), (1, 2), (0, 1), (0, 2)):
        out = r.send(release(4 * len(counts), 4, 1, [(0, 1, 1)] * again, dispatcher=at))
        counts += [(to.index, f.collapsed) for to, f in out if isinstance(f, ReleasesKept)]
    assert counts == [(0, 2), (1, 1), (0, 2), (0, 3)]


def test_a_done_batch_is_kept_again_and_delivered_once() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1))
    for _ in range(2):
        for b in range(0, 400, 4):
            r.send(release(b, 4, 1, [(0, 1, 1)]))
    assert r.kept == [(0, b) for b in range(0, 400, 4)] * 2
    assert len(r.clients[1].pairs) == 100
    assert r.machine.pending == 0
    assert len(r.machine._windows[0].done) == 1


def test_wrong_messages_are_refused() -> None:
    r = rig()
    with pytest.raises(TypeError, match="Kept"):
        r.send(ReleasesKept(0, np.zeros(1, np.int64)))
    with pytest.raises(ValueError, match="row 9 of a batch of 4"):
        r.send(release(0, 4, 0, [(9, 1, 1)]))


def test_what_comes_in_parts_is_delivered_at_once_and_once() -> None:
    r = rig()
    r.send(inserts(1, [1, 1]), attach(1))
    r.send(release(0, 4, 1, [(0, 1, 1)], whole=False, number=1))
    assert [p[:2] for p in r.clients[1].pairs.values()] == [("q1", "o0")]
    for _ in range(2):
        r.send(release(0, 4, 1, [(0, 1, 1), (0, 2, 1)], whole=False, number=2))
    assert [p[:2] for p in r.clients[1].pairs.values()] == [("q1", "o0"), ("q2", "o0")]
    assert r.kept == [(0, 1), (0, 2), (0, 2)]
    assert r.machine._windows[0].in_part
    r.send(WatermarkNotice(0, 0, oldest=4))
    assert not r.machine._windows[0].in_part


def test_what_was_told_in_part_is_not_told_again_after_a_restart() -> None:
    r = rig(retention_bytes=64, chapter_bytes=16)
    r.send(inserts(1, [1, 1]), attach(1))
    r.send(release(0, 4, 1, [(0, 1, 1), (3, 2, 1)], whole=False))
    r.tick(3 * SECOND)  # a chapter would be due
    r.restart()
    r.send(inserts(1, [1, 1]), attach(1, epoch=2, ack=2))
    # In halves, as a batch that may kill comes again, with another division of the work.
    r.send(release(0, 2, 1, [(0, 1, 1), (1, 2, 1)], number=7))
    r.send(release(2, 2, 1, [(1, 1, 1), (1, 2, 1)], number=8))
    assert [p[:2] for _, p in sorted(r.clients[1].pairs.items())] == [
        ("q1", "o0"), ("q2", "o3"), ("q2", "o1"), ("q1", "o3"),
    ]  # fmt: skip
    assert not r.machine._windows[0].in_part


def test_what_was_told_of_a_batch_that_is_given_up_is_forgotten() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1))
    r.send(release(0, 4, 1, [(0, 1, 1)], whole=False))
    assert r.machine._windows[0].in_part
    r.send(release(4, 4, 1, [(0, 1, 1)], oldest=4))  # a crash took the one before
    assert not r.machine._windows[0].in_part


def test_a_release_that_gives_up_others_is_not_given_up_itself() -> None:
    """A release that is sent again may say less of what is complete than another has."""
    r = rig()
    r.send(attach(1), release(4, 4, 1, [(0, 1, 1)], oldest=8))
    assert r.machine.pending == 1
    r.send(inserts(1, [1]))
    assert len(r.clients[1].pairs) == 1


@pytest.mark.parametrize("seed", range(5))
def test_pairs_told_in_part_are_told_once_however_batches_come_again(seed: int) -> None:
    rng = random.Random(seed)
    r = rig()
    r.send(inserts(1, [1] * 8), attach(1))
    size = 6
    pairs = {(offset, rng.randint(1, 8)) for offset in range(1, 301) for _ in range(3)}

    def found(start: int, stop: int) -> list[tuple[int, int, int]]:
        return [(o - start, h, 1) for o, h in sorted(pairs) if start <= o < stop]

    starts = list(range(1, 301, size))
    for start in starts:
        mine = rng.sample(found(start, start + size), 5)
        r.send(release(start, size, 8, mine, whole=False))
    assert len(r.clients[1].pairs) == 5 * len(starts)
    rng.shuffle(starts)
    for start in starts:
        cut = start + rng.randint(1, size)
        for a, b in ((start, cut), (cut, start + size)):
            if a < b:
                r.send(release(a, b - a, 8, found(a, b), number=1000 + a))
    told = [(offset, int(name[1:])) for name, _, _, offset in r.clients[1].pairs.values()]
    assert len(told) == len(set(told))
    assert set(told) == pairs
    assert not r.machine._windows[0].in_part


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_each_pair_once_under_any_order(data: st.DataObject) -> None:
    """Messages delayed, reordered and repeated: the merged set is what the dispatchers said."""
    draw = data.draw
    workers, dispatchers, sessions = 3, 2, 4
    owner = draw(st.lists(st.integers(0, sessions - 1), min_size=1, max_size=8))
    frames: list[Frame] = []
    lsn = 1
    while lsn <= len(owner):
        step = draw(st.integers(1, 3))
        frames.append(inserts(lsn, owner[lsn - 1 : lsn - 1 + step]))
        lsn += step
    want: set[tuple[str, str, int, int]] = set()
    releases: set[tuple[int, int]] = set()
    for dispatcher in range(dispatchers):
        batch = stamp = 0
        for _ in range(draw(st.integers(0, 3))):
            size = draw(st.integers(1, 4))
            stamp = draw(st.integers(max(stamp, 1), len(owner)))
            parts = draw(st.integers(1, workers))
            for _ in range(parts):
                pair = st.tuples(st.integers(0, size - 1), st.integers(1, stamp))
                some = draw(st.lists(pair, min_size=1, max_size=8))
                told = [(row, h, owner[h - 1]) for row, h in some]
                number = len(releases)
                whole = parts == 1
                frames.append(release(batch, size, stamp, told, dispatcher, 0, whole, number))
                releases.add((dispatcher, number))
                want |= {(f"q{h}", f"o{batch + r}", dispatcher, batch + r) for r, h, _ in told}
            batch += size
    frames += [
        attach(s, epoch, batches=draw(st.sampled_from([0, 1, 1000])))
        for s in range(sessions)
        for epoch in draw(st.lists(st.integers(1, 4), max_size=3))
    ]
    frames += [
        StreamDetach(s, draw(st.integers(1, 4))) for s in range(sessions) if draw(st.booleans())
    ]
    repeated = draw(st.lists(st.sampled_from(frames), max_size=10))
    order = draw(st.permutations(frames + repeated))
    r = rig(dispatchers=dispatchers)
    while order:
        cut = draw(st.integers(1, 4))
        r.send(*order[:cut])
        order = order[cut:]
    r.send(*(attach(s, epoch=9) for s in range(sessions)))
    got = [pair for client in r.clients.values() for pair in client.pairs.values()]
    assert len(got) == len(set(got))
    assert set(got) == want
    assert all(c.gapless() and not c.gaps for c in r.clients.values())
    for session, client in r.clients.items():
        assert {owner[int(q[1:]) - 1] for q, *_ in client.pairs.values()} <= {session}
    assert set(r.kept) == releases
    assert r.machine.pending == 0


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a short run reaches."""
    monkeypatch.setattr("ps2stream.merger.backlog.BLOCK", 3)
    monkeypatch.setattr("ps2stream.merger.fanout.MAX_BYTES", 400)
    monkeypatch.setattr("ps2stream.merger.subscribers.TURN", 40_000)
    monkeypatch.setattr("ps2stream.merger.journal.CACHE_BYTES", 2_000)
    monkeypatch.setattr("ps2stream.merger.forgotten.MAX_RECORDS", 2)
    monkeypatch.setattr("ps2stream.merger.places.FOLD", 8)
    monkeypatch.setattr("ps2stream.merger.recovery.FOLD", 8)


@pytest.mark.takes_turns
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(40))
def test_every_pair_once_by_number(seed: int) -> None:
    run(seed, 300)


@pytest.mark.usefixtures("small")
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(1_000, 2**32))
def test_every_pair_once_by_number_on_any_seed(seed: int) -> None:
    run(seed, 150)


def test_matches_of_new_queries_have_the_places_of_their_objects() -> None:
    r = rig()
    found = release(40, 3, 2, [(0, 2, 1), (2, 1, 1), (2, 2, 1)], number=7)
    found = dataclasses.replace(found, offset=np.array([5, 9]))
    r.send(inserts(1, [1, 1]), attach(1), found)
    assert r.kept == [(0, 7)]
    [batch] = r.clients[1].batches
    assert list(batch.object_offsets) == [5, 9]
    r.send(dataclasses.replace(found, release=8))  # a dispatcher that starts again repeats it
    r.restart()
    r.send(inserts(1, [1, 1]), attach(1, epoch=2, ack=3), dataclasses.replace(found, release=9))
    assert r.kept == [(0, 7), (0, 8), (0, 9)]
    assert len(r.clients[1].pairs) == 3
    assert r.clients[1].repeats == 0


LEAP = 1 << 12


@pytest.fixture
def short_leaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gaps of an unknown number of pairs skip few numbers."""
    monkeypatch.setattr(session_numbers, "LEAP", LEAP)
    monkeypatch.setattr(subscribers, "LEAP", LEAP)


@pytest.mark.usefixtures("short_leaps")
def test_sessions_are_told_once_that_objects_are_gone() -> None:
    r = rig()
    r.send(inserts(1, [1, 2]), attach(1))
    r.send(release(0, 1, 2, [(0, 1, 1), (0, 2, 2)]))
    gone = release(1, 1, 2, [], number=7)
    gone = dataclasses.replace(gone, missed=np.array([1, 2]))
    r.send(gone, release(2, 1, 2, [(0, 1, 1)]))
    assert r.clients[1].gaps == [(2, LEAP + 1, 0)]
    assert list(r.clients[1].pairs) == [1, LEAP + 2]
    r.send(dataclasses.replace(gone, release=8))
    r.restart()
    r.send(inserts(1, [1, 2]), dataclasses.replace(gone, release=9))
    r.send(attach(1, epoch=2, ack=LEAP + 1), attach(2, epoch=2))
    assert r.clients[1].gaps == [(2, LEAP + 1, 0)]
    assert r.clients[2].gaps == [(2, LEAP + 1, 0)]
    assert list(r.clients[2].pairs) == [1]
    assert sorted(number for _, number in r.kept) == [0, 2, 7, 8, 9]


@pytest.mark.usefixtures("short_leaps")
def test_a_full_log_tells_sessions_later_that_objects_are_gone() -> None:
    r = rig()
    r.send(inserts(1, [1]), attach(1))
    gone = dataclasses.replace(release(0, 1, 1, [], number=7), missed=np.array([1]))
    r.log.full = True
    r.send(gone)
    assert r.kept == []
    r.log.full = False
    r.tick(SECOND)
    assert r.kept == [(0, 7)]
    assert r.clients[1].gaps == [(1, LEAP, 0)]


def test_every_session_receives_a_notice_of_shed_load_once() -> None:
    r = rig()
    r.send(inserts(1, [1, 2, 1]), attach(1), attach(3))
    r.send(release(0, 1, 3, [(0, 1, 1)]))
    numbers = np.array([1_000, 6_000, 10, 90, 40, 25])
    shares = np.array([-1, 0, 1]), np.array([0.5, 0.1, 0.25])
    notice = dataclasses.replace(
        release(1, 1, 3, [], number=7),
        shed=numbers, shed_session=shares[0], shed_share=shares[1],
    )  # fmt: skip
    r.send(notice, release(2, 1, 3, [(0, 1, 1)]))
    r.send(dataclasses.replace(notice, release=8))
    assert r.clients[1].gaps == [(2, 2, 0)]
    assert r.clients[3].gaps == [(1, 1, 0)], "without queries, but with a stream"
    assert list(r.clients[1].pairs) == [1, 3]
    r.restart()
    r.send(inserts(1, [1, 2, 1]), dataclasses.replace(notice, release=9))
    r.send(attach(1, epoch=2), attach(2, epoch=2), attach(3, epoch=2, ack=1))
    assert r.clients[2].gaps == [(1, 1, 0)], "with queries, but without a stream"
    assert list(r.clients[1].pairs) == [1, 3]
    assert sorted(number for _, number in r.kept) == [0, 2, 7, 8, 9]
    for session, share in ((1, 0.25), (2, 0.5)):
        gap = next(b.gap for b in r.clients[session].batches if b.HasField("gap"))
        shed = gap.shed
        found = [shed.from_ms, shed.to_ms, shed.from_offset, shed.to_offset, shed.objects]
        assert [*found, shed.sampled_matches] == numbers.tolist()
        assert (shed.partition, shed.share) == (0, share)
