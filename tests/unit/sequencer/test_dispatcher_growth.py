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
from ps2stream.protocol.messages.publications import DispatcherEmptied, WindowsHeld
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


def test_those_that_run_in_vain_are_not_wanted_any_more() -> None:
    ledger = Ledger()
    ledger.ask(3)
    for _ in range(ASKED_TICKS - 1):
        ledger.growth.tick()
    assert ledger.growth.run(2) == 3
    ledger.growth.tick()
    assert ledger.growth.run(2) == 1
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
    ledger.growth.note(WindowsHeld(0, 9))
    ledger.growth.note(WindowsHeld(1, 9))
    ledger.growth.note(WindowsHeld(2, 7))
    assert ledger.growth.producers.is_moving, "that was said of another change"
    ledger.is_full = True
    ledger.growth.note(WindowsHeld(2, 9))
    assert ledger.growth.producers.is_moving
    ledger.is_full = False
    ledger.growth.tick()
    assert ledger.records[-1].producers == ProducerMap(9, 3, 3, 2)
    assert ledger.ask(0).moving == 0


def test_what_cannot_be_done_now_is_refused() -> None:
    ledger = Ledger(2)
    assert problem(ledger.ask(2)) == ""
    ledger.grow(3)
    ledger.growth.run(4)
    assert "producers still move to 3 of them" in problem(ledger.ask(4))
    [send] = ledger.moves.answer(MergersRequest(0, 5, 2), ME, 9)
    assert isinstance(send.frame, MergersReply)
    assert b"the number of dispatchers is changing" in send.frame.problem.tobytes()
    for dispatcher in range(3):
        ledger.growth.note(WindowsHeld(dispatcher, 9))
    ledger.moves.run(2)
    ledger.moves.answer(MergersRequest(0, 5, 2), ME, 10)
    assert ledger.records[-1].producers == ProducerMap(9, 3, 3, 2), "it is in every record"
    assert "sessions are moving" in problem(ledger.ask(4))


def shrink(ledger: Ledger, dispatchers: int) -> None:
    reply = ledger.ask(dispatchers)
    assert (reply.dispatchers, reply.lsn, reply.moving) == (dispatchers, 9, 1)


def test_those_that_leave_count_until_nothing_of_them_is_under_way() -> None:
    ledger = Ledger(3)
    shrink(ledger, 1)
    ledger.growth.note(WindowsHeld(0, 9))
    ledger.growth.note(DispatcherEmptied(1, 9, 50))
    assert ledger.growth.run(3) == 3
    assert ledger.growth.counts(2)
    ledger.growth.note(DispatcherEmptied(2, 7, 80))
    assert ledger.growth.producers.is_moving, "that was said of another change"
    ledger.growth.note(DispatcherEmptied(2, 9, 70))
    assert ledger.records[-1].producers == ProducerMap(9, 1, 1, 3, left_out=70)
    assert ledger.growth.run(3) == 1
    assert not ledger.growth.counts(1)


def test_the_windows_of_those_that_leave_must_be_held() -> None:
    ledger = Ledger(3)
    shrink(ledger, 2)
    ledger.growth.note(DispatcherEmptied(2, 9, 0))
    ledger.growth.note(WindowsHeld(0, 9))
    assert ledger.growth.producers.is_moving
    ledger.growth.note(WindowsHeld(1, 9))
    assert not ledger.growth.producers.is_moving


def test_what_is_visible_and_the_watermark_wait_for_those_that_leave() -> None:
    ledger = Ledger(2)
    ledger.followers.mark(Address("merger", 0), 20)
    shrink(ledger, 1)
    for dispatcher, lsn in ((0, 12), (1, 3)):
        ledger.followers.apply(dispatcher, lsn)
        ledger.followers.mark(Address("dispatcher", dispatcher), lsn)
    ledger.followers.see(12)
    assert (ledger.followers.visible, ledger.followers.watermark) == (3, 3)
    ledger.growth.note(DispatcherEmptied(1, 9, 0))
    ledger.growth.note(WindowsHeld(0, 9))
    ledger.followers.see(12)
    ledger.followers.mark(Address("dispatcher", 0), 12)
    assert (ledger.followers.visible, ledger.followers.watermark) == (12, 12)


def test_one_that_has_left_is_answered_and_may_join_again() -> None:
    ledger = Ledger(2)
    shrink(ledger, 1)
    ledger.growth.note(DispatcherEmptied(1, 9, 0))
    ledger.growth.note(WindowsHeld(0, 9))
    ledger.growth.run(1)
    [send] = ledger.growth.answer(DispatchersRequest(1, 5, 0), 12)
    assert send.to == Address("dispatcher", 1)
    ledger.followers.apply(0, 30)
    ledger.growth.run(2)
    ledger.ask(2, lsn=20)
    assert ledger.growth.counts(1)
    ledger.followers.see(30)
    assert ledger.followers.visible == 0, "what it had applied before does not count"
