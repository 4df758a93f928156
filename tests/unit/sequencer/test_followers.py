"""Who has applied what: what is visible, and what nobody needs any more."""

from __future__ import annotations

from ps2stream.protocol.addresses import Address
from ps2stream.protocol.messages.updates import (
    AppliedReport,
    LedgerFetch,
)
from ps2stream.sequencer.followers import FollowerProgress
from ps2stream.sequencer.machine import SequencerMachine
from ps2stream.store.memory import MemoryStore
from tests.support.sequencing import (
    a_request,
    tips,
)
from tests.support.updates import DISPATCHERS

WORKER = Address("worker", 0)


def test_visible_is_what_every_dispatcher_has() -> None:
    machine = SequencerMachine(DISPATCHERS, MemoryStore())
    machine.append([a_request(i) for i in range(1, 5)])
    assert machine.on(AppliedReport(0, 5, 0)) == machine.on(AppliedReport(1, 3, 0)) == []
    assert tips(machine.on(AppliedReport(2, 4, 0))) == dict.fromkeys(DISPATCHERS, (12, 3))
    assert machine.on(AppliedReport(2, 9, 0)) == machine.on(AppliedReport(1, 1, 0)) == []
    assert machine.on(AppliedReport(0, 2, 0)) == []  # an old one takes nothing back
    assert tips(machine.on(AppliedReport(1, 8, 0))) == dict.fromkeys(DISPATCHERS, (12, 5))
    assert machine.visible == 5


def test_the_fenced_are_not_waited_for_until_they_have_caught_up() -> None:
    machine = SequencerMachine([*DISPATCHERS[:2], WORKER], MemoryStore())
    machine.append([a_request(1), a_request(2)])
    machine.on(AppliedReport(0, 6, 0))
    assert tips(machine.fence(1)) == {DISPATCHERS[0]: (6, 6)}
    # Its next incarnation starts. It must hear of nothing that is visible without it.
    assert set(tips(machine.tick())) == {DISPATCHERS[0], WORKER}
    machine.append([a_request(3)])
    assert tips(machine.on(AppliedReport(0, 9, 0))) == {DISPATCHERS[0]: (9, 9)}
    assert tips(machine.on(LedgerFetch(0, 1, 0, 0))) == {}
    assert tips(machine.joined(DISPATCHERS[1])) == {DISPATCHERS[1]: (9, 9)}
    machine.append([a_request(4)])
    assert machine.on(AppliedReport(0, 12, 0)) == []
    assert tips(machine.on(AppliedReport(1, 11, 0))) == dict.fromkeys(DISPATCHERS[:2], (12, 11))


def test_one_that_joins_has_nothing_whatever_the_last_one_had() -> None:
    machine = SequencerMachine(DISPATCHERS[:2], MemoryStore())
    machine.append([a_request(1), a_request(2)])
    machine.on(AppliedReport(1, 6, 0))
    machine.joined(DISPATCHERS[1])
    assert machine.on(AppliedReport(0, 6, 0)) == []
    assert machine.visible == 0
    assert set(tips(machine.on(AppliedReport(1, 4, 0))).values()) == {(6, 4)}


def test_what_nobody_needs_is_below_what_any_dispatcher_or_merger_needs() -> None:
    merger = Address("merger", 0)
    followers = FollowerProgress([*DISPATCHERS[:2], merger, WORKER], 5)
    assert not followers.mark(DISPATCHERS[0], 9)
    assert not followers.mark(DISPATCHERS[1], 8)
    assert followers.mark(merger, 7)
    assert followers.watermark == 7
    assert not followers.mark(merger, 6)
    assert followers.mark(merger, 20)
    assert followers.watermark == 8


def test_it_goes_on_where_the_store_was() -> None:
    followers = FollowerProgress(DISPATCHERS[:1], 5)
    assert not followers.mark(DISPATCHERS[0], 3)
    assert (followers.watermark, followers.visible) == (5, 0)


def test_the_first_dispatcher_that_is_not_fenced_routes_what_nobody_asked_for() -> None:
    followers = FollowerProgress(DISPATCHERS, 0)
    assert followers.first == 0
    followers.fence(DISPATCHERS[0])
    followers.fence(DISPATCHERS[1])
    assert followers.first == 2
    followers.joined(DISPATCHERS[1])
    assert followers.first == 1
    for dispatcher in DISPATCHERS:
        followers.fence(dispatcher)
    assert followers.first == 0


def test_all_is_visible_where_every_dispatcher_is_fenced() -> None:
    followers = FollowerProgress(DISPATCHERS[:1], 0)
    followers.apply(0, 4)
    assert followers.see(9)
    assert followers.visible == 4
    followers.fence(DISPATCHERS[0])
    assert not followers.waits_for(DISPATCHERS[0])
    assert followers.see(9)
    assert followers.visible == 9
