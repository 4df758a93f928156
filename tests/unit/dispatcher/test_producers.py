"""The windows of producers, against a naive memory: what is found, refused and forgotten."""

from __future__ import annotations

import random

import pytest

from ps2stream.dispatcher import producers
from ps2stream.dispatcher.gateway import AcceptedBatch, PublicationIdentity
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.dispatcher.producers import (
    KEPT_S,
    ProducerWindows,
    check_digest,
    find_owner,
    read_windows,
)
from ps2stream.errors import AlreadyExists, FailedPrecondition, ResourceExhausted
from ps2stream.limits import PRODUCER_WINDOW
from tests.support.desk import rows
from tests.support.memory_log import MemoryLog

DIGEST = bytes(range(16))


def identity(seq: int, producer: str = "p", digest: bytes = DIGEST) -> PublicationIdentity:
    return PublicationIdentity(producer, seq, digest)


def answer(seq: int) -> AcceptedBatch:
    return AcceptedBatch(seq % 3, 1 << 40 | seq, seq + 5)


def filled(*seqs: int, producer: str = "p", now: float = 0.0) -> ProducerWindows:
    windows = ProducerWindows()
    for seq in seqs:
        windows.add(identity(seq, producer), answer(seq), now)
    return windows


def test_what_was_added_is_found_and_nothing_else() -> None:
    most = 2**64 - 1
    windows = filled(1, 2, 7, 3)
    windows.add(identity(most), AcceptedBatch(2, 3, 4))
    for seq in (1, 2, 7, 3):
        assert windows.find(identity(seq)) == answer(seq)
    assert windows.find(identity(most)) == AcceptedBatch(2, 3, 4)
    assert windows.find(identity(4)) is None
    assert windows.find(identity(1, "other")) is None


def test_another_content_is_refused() -> None:
    windows = filled(1)
    with pytest.raises(AlreadyExists, match="seq 1 of producer 'p'"):
        windows.find(identity(1, digest=bytes(16)))
    with pytest.raises(AlreadyExists, match="producer 'p'"):
        check_digest(identity(1, "tenant\0p"), bytes(16))


@pytest.mark.parametrize("seed", range(5))
def test_a_window_holds_the_last_publications_by_seq(seed: int) -> None:
    rng = random.Random(seed)
    windows, naive, floor = ProducerWindows(), dict[int, AcceptedBatch](), 0
    for at in range(4 * PRODUCER_WINDOW):
        seq = max(1, at * 3 - rng.randrange(400))
        if seq in naive:
            assert windows.find(identity(seq)) == naive[seq]
            continue
        if seq <= floor or (len(naive) == PRODUCER_WINDOW and seq < min(naive)):
            with pytest.raises(FailedPrecondition, match="producer_window"):
                windows.find(identity(seq))
            continue
        assert windows.find(identity(seq)) is None
        windows.add(identity(seq), answer(seq))
        naive[seq] = answer(seq)
        if len(naive) > PRODUCER_WINDOW:
            floor = min(naive)
            del naive[floor]
    assert floor > 0
    for seq, first in naive.items():
        assert windows.find(identity(seq)) == first


def test_a_publication_that_is_overtaken_by_a_whole_window_is_not_published_again() -> None:
    windows = filled(*range(10, 10 + PRODUCER_WINDOW))
    windows.add(identity(3), answer(3))  # it was under way all the time
    with pytest.raises(FailedPrecondition, match="begin with seq 10"):
        windows.find(identity(3))


def test_windows_go_through_records_and_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = filled(*range(1, PRODUCER_WINDOW + 9))
    windows.add(identity(4, "q"), answer(4))
    records = list(windows.make_records())
    other = filled(PRODUCER_WINDOW + 20)
    assert [other.merge(record) for record in records] == [True, True]
    assert [other.merge(record) for record in records] == [False, False]
    assert other.find(identity(4, "q")) == answer(4)
    assert other.find(identity(PRODUCER_WINDOW + 20)) == answer(PRODUCER_WINDOW + 20)
    assert other.find(identity(PRODUCER_WINDOW)) == answer(PRODUCER_WINDOW)
    for seq in (1, 8, 9):
        with pytest.raises(FailedPrecondition):
            other.find(identity(seq))


def test_room_is_made_by_those_that_were_silent_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PRODUCERS", 3)
    windows = ProducerWindows()
    for now, name in enumerate("abc"):
        windows.make_room(name, now)
        windows.add(identity(1, name), answer(1), now)
    windows.add(identity(2, "a"), answer(2), 3.0)
    windows.make_room("c", 4.0)  # it has its place
    with pytest.raises(ResourceExhausted, match=r"3 producers .* \(producers\)"):
        windows.make_room("d", KEPT_S)
    windows.make_room("d", 1.0 + KEPT_S)  # b is the one that was silent longest
    windows.add(identity(1, "d"), answer(1), 1.0 + KEPT_S)
    assert windows.find(identity(1, "b")) is None
    assert all(windows.find(identity(1, name)) == answer(1) for name in "acd")


def test_a_tenant_does_not_take_the_room_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "TENANT_PRODUCERS", 2)
    windows = ProducerWindows()
    for name in ("t\0a", "t\0b", "other"):
        windows.make_room(name, 0.0)
        windows.add(identity(1, name), answer(1), 0.0)
    with pytest.raises(ResourceExhausted, match="tenant_producers"):
        windows.make_room("t\0c", 1.0)
    windows.make_room("more", 1.0)
    windows.make_room("t\0c", KEPT_S)
    assert windows.find(identity(1, "t\0a")) is None
    assert windows.find(identity(1, "other")) == answer(1)


def test_after_a_restart_the_time_of_all_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "PRODUCERS", 1)
    windows = ProducerWindows()
    for record in filled(1).make_records():
        windows.merge(record)
    for now in (1e6, 1e6 + KEPT_S - 1):
        with pytest.raises(ResourceExhausted):
            windows.make_room("q", now)
    windows.make_room("q", 1e6 + KEPT_S)
    assert len(windows) == 0


def test_every_producer_has_one_owner_and_others_forget_it() -> None:
    names = [f"producer {i}" for i in range(300)]
    owners = [find_owner(name, 3) for name in names]
    assert all(owners.count(i) > 50 for i in range(3))
    windows = ProducerWindows()
    for name in names:
        windows.add(identity(1, name), answer(1))
    windows.keep_owned(1, 3)
    for name, owner in zip(names, owners, strict=True):
        assert (windows.find(identity(1, name)) is not None) == (owner == 1)


def test_windows_are_read_from_a_log() -> None:
    memory = MemoryLog()
    log = ObjectLog(memory, 2)
    log.append(0, 5, rows(4))
    parts = [(identity(1), 3), (identity(9, "q"), 1)]
    log.append_identified(4, 6, rows(4), parts, 0.0)
    windows = read_windows(memory, 2)
    assert windows.find(identity(1)) == AcceptedBatch(2, 4, 6)
    assert windows.find(identity(9, "q")) == AcceptedBatch(2, 7, 6)
    [record, _] = windows.make_records()
    assert record.producer.tobytes() == b"p"
    assert record.floor.tolist() == [0]


def test_of_two_publications_under_one_number_the_later_counts() -> None:
    """As where a producer was forgotten between them, and both are in the log."""
    memory = MemoryLog()
    log = ObjectLog(memory)
    for batch in (0, 9):
        log.append_identified(batch, 5, rows(1), [(identity(1), 1)], 0.0)
    for windows in (log.windows, read_windows(memory, 0)):
        assert windows.find(identity(1)) == AcceptedBatch(0, 9, 5)
