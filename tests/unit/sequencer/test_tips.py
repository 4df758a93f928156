"""When peers are sent how far the ledger goes."""

from __future__ import annotations

from ps2stream.protocol.addresses import Address
from ps2stream.protocol.messages.updates import AppliedReport, LedgerTip
from ps2stream.protocol.ticks import REPEAT_TICKS
from ps2stream.sequencer.followers import FollowerProgress
from ps2stream.sequencer.tips import TipAnnouncer
from tests.support.sequencing import tips

ME, WORKER = Address("dispatcher", 0), Address("worker", 0)


def make() -> tuple[FollowerProgress, TipAnnouncer]:
    followers = FollowerProgress([ME, WORKER], 0)
    return followers, TipAnnouncer([ME, WORKER], followers)


def test_a_tip_is_repeated_ever_more_seldom() -> None:
    _, announcer = make()
    sent = [tick for tick in range(2 * REPEAT_TICKS + 1) if announcer.tick(5)]
    powers = [1 << n for n in range(2 * REPEAT_TICKS) if 1 << n <= 2 * REPEAT_TICKS]
    assert sent == sorted({0, *powers, REPEAT_TICKS, 2 * REPEAT_TICKS})
    assert tips(announcer.tick(6)) == {ME: (6, 0), WORKER: (6, 0)}


def test_a_peer_that_joins_is_sent_the_tip_and_again_soon() -> None:
    _, announcer = make()
    for _ in range(6):
        announcer.tick(5)
    [send] = announcer.joined(WORKER, 5)
    assert send.to == WORKER
    assert isinstance(send.frame, LedgerTip)
    assert tips(announcer.tick(5)).keys() == {ME, WORKER}


def test_dispatchers_are_told_once_what_has_become_visible() -> None:
    followers, announcer = make()
    assert announcer.announce_visible(5) == []
    followers.apply(0, AppliedReport(0, 4, 0).lsn)
    assert tips(announcer.announce_visible(5)) == {ME: (5, 4)}
    assert announcer.announce_visible(5) == []


def test_a_fenced_dispatcher_is_sent_none() -> None:
    followers, announcer = make()
    followers.fence(ME)
    assert tips(announcer.make([ME, WORKER], 5)).keys() == {WORKER}
