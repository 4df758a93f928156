"""The sequencer's part when dispatchers join: requests, records, who counts, the end."""

from __future__ import annotations

from ps2stream.errors import Unavailable
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import U8
from ps2stream.protocol.messages.handover import (
    DispatchersReply,
    DispatchersRequest,
    MergersReply,
    MergersRequest,
)
from ps2stream.protocol.messages.publications import WindowsHeld
from ps2stream.protocol.producer_map import ProducerMap
from ps2stream.protocol.session_map import SessionMaps
from ps2stream.sequencer.dispatcher_growth import DispatcherGrowth
from ps2stream.sequencer.followers import FollowerProgress
from ps2stream.sequencer.plan_changes import PlanChangeDriver
from ps2stream.sequencer.registry import QueryRegistry
from ps2stream.sequencer.session_moves import ASKED_TICKS, SessionMoves
from ps2stream.store.memory import MemoryStore

ME = Address("dispatcher", 0)


class Ledger:
    """Records, and what follows them."""

    def __init__(self, dispatchers: int = 1) -> None:
        self.peers = [*(Address("dispatcher", i) for i in range(dispatchers)), Address("merger", 0)]
        self.records: list[SessionMaps] = []
        self.is_full = False
        self.followers = FollowerProgress(self.peers, 0)
        store = MemoryStore()
        live = QueryRegistry(store.identity)
        plans = PlanChangeDriver(None, self.peers, self.followers, live, self.commit, store)
        self.moves = SessionMoves(1, self.peers, self.followers, self.commit)
        self.growth = DispatcherGrowth(None, self.peers, self.followers, plans, self.moves)

    def commit(self, record: U8, owner: int) -> list[Send]:
        assert owner == 0
        if self.is_full:
            raise Unavailable("the disk is full")
        self.records.append(SessionMaps.of_record(record))
        self.moves.apply(record)
        return []

    def ask(self, dispatchers: int, lsn: int = 8) -> DispatchersReply:
        [send] = self.growth.answer(DispatchersRequest(0, 5, dispatchers), lsn)
        assert send.to == ME
        assert isinstance(send.frame, DispatchersReply)
        assert send.frame.seq == 5
        return send.frame

    def grow(self, dispatchers: int) -> None:
        """They run, and are requested."""
        self.growth.run(dispatchers)
        reply = self.ask(dispatchers)
        assert (reply.dispatchers, reply.lsn, reply.moving) == (dispatchers, 9, 1)


def problem(reply: DispatchersReply) -> str:
    return reply.problem.tobytes().decode()


def test_dispatchers_are_wanted_for_a_while_and_count_once_they_run() -> None:
    ledger = Ledger()
    reply = ledger.ask(3)
    assert reply.wait
    assert problem(reply).startswith("dispatchers: 3 are needed; 1 are running")
    assert ledger.growth.run(1) == 3
    assert ledger.growth.run(3) == 3
    assert [p.index for p in ledger.peers if p.role == "dispatcher"] == [0, 1, 2]
    assert not ledger.growth.counts(1)
    reply = ledger.ask(3)
    assert (reply.dispatchers, reply.lsn, reply.moving, problem(reply)) == (3, 9, 1, "")
    assert ledger.records[-1].producers == ProducerMap(9, 3, 1, 1)
    assert ledger.growth.counts(2)


def test_those_that_run_in_vain_go_on() -> None:
    ledger = Ledger()
    ledger.ask(3)
    for _ in range(ASKED_TICKS):
        ledger.growth.tick()
    assert ledger.growth.run(2) == 2
    assert not ledger.growth.counts(1)


def test_what_is_visible_waits_for_a_new_one_from_its_record_on() -> None:
    ledger = Ledger()
    ledger.followers.apply(0, 8)
    ledger.followers.apply(1, 3)
    ledger.followers.see(8)
    assert ledger.followers.visible == 8
    ledger.grow(2)
    ledger.followers.apply(0, 12)
    ledger.followers.see(12)
    assert ledger.followers.visible == 8
    ledger.followers.apply(1, 10)
    ledger.followers.see(12)
    assert ledger.followers.visible == 10


def test_a_new_one_counts_though_it_was_fenced_while_it_started() -> None:
    ledger = Ledger()
    ledger.followers.fence(Address("dispatcher", 1))
    ledger.grow(2)
    ledger.followers.apply(0, 12)
    ledger.followers.see(12)
    assert ledger.followers.visible == 0


def test_the_watermark_waits_for_a_new_one() -> None:
    ledger = Ledger()
    merger = Address("merger", 0)
    ledger.followers.mark(merger, 20)
    ledger.followers.mark(ME, 8)
    ledger.grow(2)
    ledger.followers.mark(ME, 20)
    assert ledger.followers.watermark == 8
    ledger.followers.mark(Address("dispatcher", 1), 15)
    assert ledger.followers.watermark == 15


def test_the_change_ends_when_all_hold_their_windows() -> None:
    ledger = Ledger(2)
    ledger.grow(3)
    ledger.growth.note_held(WindowsHeld(0, 9))
    ledger.growth.note_held(WindowsHeld(1, 9))
    ledger.growth.note_held(WindowsHeld(2, 7))
    assert ledger.growth.producers.is_moving, "that was said of another change"
    ledger.is_full = True
    ledger.growth.note_held(WindowsHeld(2, 9))
    assert ledger.growth.producers.is_moving
    ledger.is_full = False
    ledger.growth.tick()
    assert ledger.records[-1].producers == ProducerMap(9, 3, 3, 2)
    assert ledger.ask(0).moving == 0


def test_what_cannot_be_done_now_is_refused() -> None:
    ledger = Ledger(2)
    assert "fewer need a restart" in problem(ledger.ask(1))
    assert problem(ledger.ask(2)) == ""
    ledger.grow(3)
    ledger.growth.run(4)
    assert "producers still move to 3 of them" in problem(ledger.ask(4))
    [send] = ledger.moves.answer(MergersRequest(0, 5, 2), ME, 9)
    assert isinstance(send.frame, MergersReply)
    assert b"dispatchers are joining" in send.frame.problem.tobytes()
    for dispatcher in range(3):
        ledger.growth.note_held(WindowsHeld(dispatcher, 9))
    ledger.moves.run(2)
    ledger.moves.answer(MergersRequest(0, 5, 2), ME, 10)
    assert ledger.records[-1].producers == ProducerMap(9, 3, 3, 2), "it is in every record"
    assert "sessions are moving" in problem(ledger.ask(4))
