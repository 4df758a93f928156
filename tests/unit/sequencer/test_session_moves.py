"""The sequencer's part in moves of sessions: requests, records, the end."""

from __future__ import annotations

import pytest

from ps2stream.errors import Unavailable
from ps2stream.protocol.addresses import Address, Send, nothing
from ps2stream.protocol.frame import U8
from ps2stream.protocol.messages.handover import MergersReply, MergersRequest, SessionsHeld
from ps2stream.protocol.messages.updates import NamesKept
from ps2stream.protocol.session_map import SessionMaps
from ps2stream.sequencer.followers import FollowerProgress
from ps2stream.sequencer.session_moves import ASKED_TICKS, SessionMoves

ME = Address("dispatcher", 0)


class Ledger:
    """Records, and moves that follow them."""

    def __init__(self, mergers: int = 1) -> None:
        self.peers = [ME, *(Address("merger", i) for i in range(mergers))]
        self.records: list[SessionMaps] = []
        self.is_full = False
        self.followers = FollowerProgress(self.peers, 0)
        self.moves = SessionMoves(mergers, self.peers, self.followers, self.commit)

    def commit(self, record: U8, owner: int) -> list[Send]:
        assert owner == 0
        if self.is_full:
            raise Unavailable("the disk is full")
        self.records.append(SessionMaps.of_record(record))
        self.moves.apply(record)
        return []

    def ask(self, mergers: int, lsn: int = 8) -> MergersReply:
        [send] = self.moves.answer(MergersRequest(0, 5, mergers), ME, lsn)
        assert send.to == ME
        assert isinstance(send.frame, MergersReply)
        assert send.frame.seq == 5
        return send.frame


def problem(reply: MergersReply) -> str:
    return reply.problem.tobytes().decode()


def test_more_mergers_are_wanted_for_a_while_and_granted_once_they_run() -> None:
    ledger = Ledger()
    reply = ledger.ask(3)
    assert reply.wait
    assert problem(reply).startswith("mergers: 3 are needed; 1 are running")
    assert ledger.moves.run(1) == 3
    assert ledger.moves.run(3) == 3
    assert [peer.index for peer in ledger.peers if peer.role == "merger"] == [0, 1, 2]
    reply = ledger.ask(3)
    assert (reply.mergers, reply.lsn, reply.moving, problem(reply)) == (3, 9, 1, "")
    for _ in range(ASKED_TICKS):
        ledger.moves.tick()
    assert ledger.moves.run(3) == 3


def test_mergers_that_nobody_requests_again_are_not_wanted() -> None:
    ledger = Ledger()
    ledger.ask(3)
    for _ in range(ASKED_TICKS):
        ledger.moves.tick()
    assert ledger.moves.run(1) == 1


def test_the_move_ends_when_all_that_gain_hold_their_sessions() -> None:
    ledger = Ledger()
    ledger.moves.run(3)
    ledger.ask(3)
    for merger, lsn in ((1, 9), (2, 7), (0, 9)):
        ledger.moves.note_held(SessionsHeld(merger, lsn))
    assert ledger.ask(0).moving
    again = ledger.ask(2)
    assert "sessions are still moving to 3 mergers" in problem(again)
    assert not again.wait
    ledger.is_full = True
    ledger.moves.note_held(SessionsHeld(2, 9))
    assert ledger.ask(0).moving
    ledger.is_full = False
    ledger.moves.tick()
    assert (ledger.ask(0).moving, ledger.ask(0).mergers) == (0, 3)
    assert [maps.before is None for maps in ledger.records] == [False, True]


def test_mergers_without_sessions_are_dismissed_only_after_the_end() -> None:
    ledger = Ledger(3)
    ledger.ask(1)
    assert ledger.moves.run(3) == 3
    ledger.moves.note_held(SessionsHeld(0, 9))
    assert ledger.moves.run(3) == 1
    assert ledger.moves.run(1) == 1
    assert [peer.index for peer in ledger.peers if peer.role == "merger"] == [0]


def test_the_number_in_force_and_a_full_ledger_change_nothing() -> None:
    ledger = Ledger(2)
    assert not problem(ledger.ask(2))
    ledger.is_full = True
    reply = ledger.ask(1)
    assert reply.wait
    assert not ledger.records
    assert not ledger.moves.changed
    assert ledger.moves.make_record().tolist() == nothing().tolist()


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_successor_goes_on_from_the_records(is_finished: bool) -> None:
    ledger = Ledger(3)
    ledger.ask(2)
    if is_finished:
        for merger in (0, 1):
            ledger.moves.note_held(SessionsHeld(merger, 9))
    other = Ledger(3)
    other.moves.apply(ledger.moves.make_record())
    assert other.moves.maps.step == ledger.moves.maps.step == (9, not is_finished)
    assert other.moves.counters == {"mergers": 2, "moving_sessions": int(not is_finished)}


def test_a_merger_that_gains_sessions_needs_the_names_of_their_queries() -> None:
    """It has said what it needs no more before they came, and its neighbour, which has not, goes:
    what the sessions' pairs need would be dropped before the merger has it."""
    ledger = Ledger(2)

    def mark(merger: int, lsn: int, table: int) -> int:
        kept = ledger.moves.find_kept(NamesKept(merger, lsn, table))
        ledger.followers.mark(Address("merger", merger), kept)
        return ledger.followers.watermark

    ledger.followers.mark(ME, 70)
    assert (mark(0, 64, 0), mark(1, 20, 0)) == (0, 20)
    ledger.ask(1, lsn=70)
    assert mark(0, 64, 0) == 20  # it was on its way
    ledger.moves.note_held(SessionsHeld(0, 71))
    assert ledger.moves.counters["mergers"] == 1
    assert mark(0, 65, 0) == 20
    assert mark(0, 66, 71) == 66


def test_a_merger_that_gains_nothing_is_taken_at_its_word() -> None:
    ledger = Ledger(1)
    ledger.moves.run(2)
    for peer in (ME, Address("merger", 0)):
        ledger.followers.mark(peer, 50)
    assert ledger.followers.watermark == 50
    ledger.ask(2, lsn=70)
    ledger.followers.mark(ME, 60)
    ledger.followers.mark(Address("merger", 1), 55)
    assert ledger.followers.watermark == 50
    ledger.followers.mark(Address("merger", 0), ledger.moves.find_kept(NamesKept(0, 60, 71)))
    assert ledger.followers.watermark == 55
