"""Windows of producers that move between dispatchers which share nothing but messages."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.dispatcher import window_moves
from ps2stream.dispatcher.gateway import AcceptedBatch, PublicationIdentity
from ps2stream.dispatcher.instructions import Instruction, SyncLog
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.dispatcher.producers import ProducerWindows, find_owner, read_windows
from ps2stream.dispatcher.window_moves import WindowMoves
from ps2stream.protocol.addresses import SEQUENCER, Send
from ps2stream.protocol.frame import Frame
from ps2stream.protocol.log_records import ProducerRecord
from ps2stream.protocol.messages.publications import WindowsHeld, WindowsReply, WindowsRequest
from ps2stream.protocol.producer_map import ProducerMap
from ps2stream.protocol.ticks import REPEAT_TICKS
from tests.support.desk import Router
from tests.support.memory_log import MemoryLog

NAMES = [f"p{n}" for n in range(12)]
LEAVING = sorted(p for p in NAMES if find_owner(p, 2) == 1)
"""The producers that leave when a second dispatcher joins the first one."""
GROWN = ProducerMap.first(1).changed(2, 9)


class Place:
    """A dispatcher, its log, and what it sends."""

    def __init__(self, index: int, log: MemoryLog | None = None) -> None:
        self.log = log or MemoryLog()
        self.objects = ObjectLog(self.log, index)
        self.router = Router()
        self.router.index = index
        self.open: set[str] = set()
        self.out: list[Instruction] = []
        self.moves = WindowMoves(self.router, self.objects, lambda: self.open, self.out)

    def follow(self, producers: ProducerMap) -> None:
        self.router.producers = producers
        self.moves.follow()

    def sync(self) -> None:
        self.moves.synced(self.log.sync())

    def take(self, kind: type) -> list[Frame]:
        """What it has sent of this kind; all else is dropped."""
        found = [s.frame for s in self.out if isinstance(s, Send) and isinstance(s.frame, kind)]
        self.out.clear()
        return found


@pytest.fixture
def places() -> list[Place]:
    """The one that remembers all producers, and one that joins it."""
    found = [Place(0), Place(1)]
    for n, name in enumerate(NAMES):
        identity = PublicationIdentity(name, 1, bytes(16))
        found[0].objects.windows.add(identity, AcceptedBatch(0, n, 5))
    return found


def carry(places: list[Place]) -> bool:
    """Carry one request and its answer; returns whether there was an answer."""
    for frame in places[1].take(WindowsRequest):
        places[0].moves.answer(frame)  # type: ignore[arg-type]
    replies = places[0].take(WindowsReply)
    for frame in replies:
        places[1].moves.receive(frame, 0.0)  # type: ignore[arg-type]
    return bool(replies)


def test_producers_are_taken_once_their_windows_are_durable(places: list[Place]) -> None:
    for place in places:
        place.follow(GROWN)
    producer = LEAVING[0]
    assert "another dispatcher remembers" in places[0].moves.describe_refusal(producer)
    assert "moves to another dispatcher" in places[1].moves.describe_refusal(producer)
    assert carry(places)
    assert any(isinstance(each, SyncLog) for each in places[1].out)
    assert "moves to another dispatcher" in places[1].moves.describe_refusal(producer)
    places[1].sync()
    assert places[1].moves.describe_refusal(producer) == ""
    [held] = places[1].take(WindowsHeld)
    assert isinstance(held, WindowsHeld)
    assert (held.dispatcher, held.lsn) == (1, 9)
    identity = PublicationIdentity(producer, 1, bytes(16))
    assert places[1].objects.windows.find(identity) == AcceptedBatch(0, NAMES.index(producer), 5)
    assert sorted(places[1].objects.windows.names) == LEAVING


def test_windows_come_in_pieces(places: list[Place], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_moves, "PIECE_BYTES", 1)
    for place in places:
        place.follow(GROWN)
    for n, producer in enumerate(LEAVING, 1):
        assert carry(places)
        assert sorted(places[1].objects.windows.names) == LEAVING[:n]
        places[1].sync()
        assert bool(places[1].moves.describe_refusal(producer)) == (n < len(LEAVING))


def test_windows_stay_while_a_publication_is_open(places: list[Place]) -> None:
    for place in places:
        place.follow(GROWN)
    places[0].open = {LEAVING[0]}
    assert not carry(places)
    places[0].open = {next(p for p in NAMES if p not in LEAVING)}
    for _ in range(REPEAT_TICKS):
        places[1].moves.tick()
    assert carry(places)


def test_who_has_not_come_so_far_does_not_answer(places: list[Place]) -> None:
    places[1].follow(GROWN)
    assert not carry(places)


def test_the_next_incarnation_requests_all_again(places: list[Place]) -> None:
    for place in places:
        place.follow(GROWN)
    assert carry(places)
    places[1] = Place(1, places[1].log)
    places[1].follow(GROWN)
    assert places[1].moves.describe_refusal(LEAVING[0])
    assert carry(places)
    places[1].sync()
    assert not places[1].moves.describe_refusal(LEAVING[0])


def test_a_full_disk_has_them_come_again(places: list[Place]) -> None:
    for place in places:
        place.follow(GROWN)
    places[1].log.full = True
    carry(places)
    places[1].log.full = False
    places[1].sync()
    assert places[1].moves.describe_refusal(LEAVING[0])
    for _ in range(REPEAT_TICKS):
        places[1].moves.tick()
    assert carry(places)
    places[1].sync()
    assert not places[1].moves.describe_refusal(LEAVING[0])


def test_it_is_said_until_the_end_that_nothing_is_missing(places: list[Place]) -> None:
    places[0].follow(GROWN)
    held = [s for s in places[0].out if isinstance(s, Send) and s.to == SEQUENCER]
    assert [(s.frame.dispatcher, s.frame.lsn) for s in held] == [(0, 9)]  # type: ignore[attr-defined]
    places[0].out.clear()
    for _ in range(REPEAT_TICKS):
        places[0].moves.tick()
    assert len(places[0].take(WindowsHeld)) == 1
    assert sorted(places[0].objects.windows.names) == sorted(NAMES), "it may be asked again"
    places[0].follow(GROWN.finished())
    assert not set(places[0].objects.windows.names) & set(LEAVING)
    for _ in range(REPEAT_TICKS):
        places[0].moves.tick()
    assert places[0].take(WindowsHeld) == []


def test_nothing_is_dropped_before_the_ledger_is_known(places: list[Place]) -> None:
    """A dispatcher that starts again knows at first the number of the service's start."""
    places[0].router.ready = False
    places[0].follow(ProducerMap.first(2))
    assert sorted(places[0].objects.windows.names) == sorted(NAMES)
    assert "catching up" in places[0].moves.describe_refusal(NAMES[0])


def test_an_answer_of_another_change_is_ignored(places: list[Place]) -> None:
    places[1].follow(GROWN)
    none = np.zeros(0, np.uint8)
    late = WindowsReply(0, 8, 1, none, np.zeros(1, np.int64), none)
    places[1].moves.receive(late, 0.0)
    places[1].sync()
    assert places[1].moves.describe_refusal(LEAVING[0])


def test_one_that_leaves_gains_nothing_and_keeps_its_windows_until_the_end() -> None:
    shrunk = ProducerMap.first(2).changed(1, 9)
    stays, leaves = Place(0), Place(1)
    for n, name in enumerate(LEAVING):
        identity = PublicationIdentity(name, 1, bytes(16))
        leaves.objects.windows.add(identity, AcceptedBatch(1, n, 5))
    for place in (stays, leaves):
        place.follow(shrunk)
    assert leaves.take(WindowsRequest) == []
    assert carry([leaves, stays])
    stays.sync()
    assert len(stays.take(WindowsHeld)) == 1
    assert sorted(leaves.objects.windows.names) == LEAVING
    for _ in range(REPEAT_TICKS):
        leaves.moves.tick()
    assert leaves.take(WindowsHeld) == []
    leaves.follow(shrunk.finished())
    assert sorted(leaves.objects.windows.names) == []


def test_what_is_of_the_time_before_it_left_does_not_count() -> None:
    """Others may have forgotten the producer since, and then remembered another publication."""
    log = MemoryLog()
    before = Place(1, log)
    identity = PublicationIdentity(LEAVING[0], 1, bytes(16))
    before.objects.append_window(window_of(identity, 3), 0.0)
    grown = ProducerMap.first(1).changed(2, 12)
    again = Place(1, log)
    assert again.objects.windows.find(identity) == AcceptedBatch(1, 3, 5)
    log.full = True
    again.follow(grown)
    assert again.take(WindowsRequest) == []
    log.full = False
    again.moves.tick()
    assert len(again.take(WindowsRequest)) == 1
    assert again.objects.windows.find(identity) is None
    again.objects.append_window(window_of(identity, 8), 0.0)
    restarted = Place(1, log)
    restarted.follow(grown)
    assert restarted.objects.windows.find(identity) == AcceptedBatch(1, 8, 5)
    assert read_windows(log, 1).find(identity) == AcceptedBatch(1, 8, 5)


def window_of(identity: PublicationIdentity, offset: int) -> ProducerRecord:
    windows = ProducerWindows()
    windows.add(identity, AcceptedBatch(1, offset, 5))
    return windows.make_record(identity.producer)
