"""What was sent to mergers and is not durable there: when it is sent again, and to whom."""

from __future__ import annotations

from ps2stream.dispatcher.releases import EPOCH_BITS, ReleaseQueues
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.messages.objects import MatchRelease
from ps2stream.protocol.ticks import OVERTAKEN_TICKS, RESEND_TICKS
from tests.support.merging import release
from tests.support.routers import kept


def add(queues: ReleaseQueues, merger: int, batch: int) -> Send:
    return queues.add(merger, release(batch, 4, 1, [(0, 1, 1)], number=queues.next))


def numbers(sends: list[Send]) -> list[tuple[int, int]]:
    """The merger and number of each release."""
    assert all(to.role == "merger" for to, _ in sends)
    return [(to.index, f.release) for to, f in sends if isinstance(f, MatchRelease)]


def test_numbers_rise_across_mergers_and_incarnations() -> None:
    queues = ReleaseQueues(2, epoch=3)
    sends = [add(queues, merger, 0) for merger in (0, 1, 0)]
    first = 3 << EPOCH_BITS
    assert numbers(sends) == [(0, first), (1, first + 1), (0, first + 2)]
    assert ReleaseQueues(2, epoch=4).next > queues.next


def test_a_release_is_kept_once_with_its_batch() -> None:
    queues = ReleaseQueues(2, epoch=0)
    for merger, batch in ((0, 5), (1, 5), (0, 9)):
        add(queues, merger, batch)
    assert list(queues.take_kept(kept(0, 2, 7, 1))) == [(2, 9)], "1 is the other merger's"
    assert list(queues.take_kept(kept(0, 2, 0))) == [(0, 5)]
    assert list(queues.take_kept(kept(1, 1))) == [(1, 5)]


def test_what_is_dropped_is_neither_sent_again_nor_reported() -> None:
    queues = ReleaseQueues(2, epoch=0)
    for merger, batch in ((0, 5), (1, 5), (0, 9)):
        add(queues, merger, batch)
    queues.drop({0, 1})
    assert queues.resend_to(1) == []
    assert numbers(queues.resend_to(0)) == [(0, 2)]
    assert list(queues.take_kept(kept(0, 0, 2))) == [(2, 9)]


def test_a_new_merger_is_sent_what_the_old_one_had_not_kept() -> None:
    queues = ReleaseQueues(2, epoch=0)
    sends = [add(queues, merger, batch) for batch in (5, 9, 13) for merger in (0, 1)]
    list(queues.take_kept(kept(0, 2)))
    assert queues.resend_to(0) == [sends[0], sends[4]]
    assert queues.resend_to(1) == sends[1::2]
    assert {to for to, _ in queues.resend_to(1)} == {Address("merger", 1)}


def test_the_mergers_that_lack_some_of_a_batch_are_known() -> None:
    queues = ReleaseQueues(3, epoch=0)
    for merger in (0, 1, 2):
        add(queues, merger, 5)
    list(queues.take_kept(kept(1, 1)))
    assert queues.mergers_of({0, 1}) == [0]
    assert queues.mergers_of({0, 1, 2}) == [0, 2]
    assert queues.mergers_of({1}) == queues.mergers_of(set()) == []


def test_what_collapsed_is_summed_over_mergers_and_their_starts() -> None:
    queues = ReleaseQueues(2, epoch=0)
    sums = []
    for merger, collapsed in ((0, 3), (1, 4), (0, 3), (0, 5), (0, 1), (1, 4)):
        list(queues.take_kept(kept(merger, collapsed=collapsed)))
        sums.append(queues.collapsed)
    assert sums == [3, 7, 7, 9, 10, 10]


def test_all_that_is_open_at_a_merger_is_sent_again_at_growing_intervals() -> None:
    queues = ReleaseQueues(2, epoch=0)
    for merger, batch in ((0, 5), (1, 5), (0, 9)):
        add(queues, merger, batch)
    list(queues.take_kept(kept(1, 1)))
    again = {tick: sends for tick in range(1, 200) if (sends := numbers(queues.tick()))}
    assert again == {RESEND_TICKS * k: [(0, 0), (0, 2)] for k in (1, 2, 4)}


def test_a_merger_that_keeps_what_it_is_sent_is_sent_nothing_again() -> None:
    """However much is on its way to it."""
    queues = ReleaseQueues(1, epoch=0)
    for tick in range(10 * RESEND_TICKS):
        add(queues, 0, 4 * tick)
        if tick >= RESEND_TICKS // 2:
            list(queues.take_kept(kept(0, tick - RESEND_TICKS // 2)))
        assert queues.tick() == []


def test_what_another_release_has_overtaken_is_sent_again_sooner_but_once() -> None:
    queues = ReleaseQueues(1, epoch=0)
    for batch in (5, 9, 13, 17):
        add(queues, 0, batch)
    list(queues.take_kept(kept(0, 2)))
    again = {tick: sends for tick in range(1, 70) if (sends := numbers(queues.tick()))}
    everything = [(0, 0), (0, 1), (0, 3)]
    assert again == {
        OVERTAKEN_TICKS: everything[:2],
        RESEND_TICKS: everything,
        2 * RESEND_TICKS: everything,
    }


def test_each_release_that_comes_to_the_front_has_its_time() -> None:
    queues = ReleaseQueues(1, epoch=0)
    for batch in (5, 9):
        add(queues, 0, batch)
    assert [queues.tick() for _ in range(RESEND_TICKS - 1)] == [[]] * (RESEND_TICKS - 1)
    list(queues.take_kept(kept(0, 0)))
    assert [queues.tick() for _ in range(RESEND_TICKS - 1)] == [[]] * (RESEND_TICKS - 1)
    assert numbers(queues.tick()) == [(0, 1)]


def test_a_report_of_a_merger_that_is_not_known_yet_is_of_an_earlier_incarnation() -> None:
    queues = ReleaseQueues(1, epoch=1)
    add(queues, 0, 5)
    assert list(queues.take_kept(kept(2, 0, 1 << EPOCH_BITS))) == []
    queues.resize(3)
    assert list(queues.take_kept(kept(2, 0))) == []
    assert numbers(queues.resend_to(0)) == [(0, 1 << EPOCH_BITS)]
