"""When a dispatcher with one worker looks its objects up, and what it sends when it does not."""

from __future__ import annotations

import numpy as np

from ps2stream.dispatcher.discards import MEMORY, PROBED, DiscardMonitor
from ps2stream.dispatcher.router import RouterMachine
from ps2stream.protocol.addresses import Send
from ps2stream.protocol.messages.objects import RoutedObjects
from ps2stream.protocol.messages.updates import LedgerTip
from ps2stream.routing.h1 import H1, HashedLeaf
from tests.support.routers import GRID, close, insert, posts, sent


def skipped(monitor: DiscardMonitor, batches: int, discarded: int) -> list[bool]:
    """Returns for each batch of 100 objects whether it was skipped; of those that are looked up
    `discarded` go to nobody."""
    found = []
    for _ in range(batches):
        found.append(monitor.may_skip())
        if not found[-1]:
            monitor.note(100, discarded)
    return found


def test_objects_are_looked_up_until_it_is_known_that_few_are_discarded() -> None:
    monitor = DiscardMonitor()
    known = MEMORY // 400
    assert skipped(monitor, 200, 25) == [
        i > known and (i - known) % PROBED != 0 for i in range(200)
    ]
    assert not any(skipped(DiscardMonitor(), 200, 26))


def test_a_stream_that_changes_is_noticed() -> None:
    monitor = DiscardMonitor()
    skipped(monitor, 1000, 0)
    found = skipped(monitor, 40 * PROBED, 100)
    assert any(found[:PROBED])
    assert not any(found[-PROBED:])
    assert any(skipped(monitor, 200, 0)[100:])


def one_worker_router() -> RouterMachine:
    """Returns a router that knows that all of its objects went somewhere."""
    h1 = H1(1, np.zeros(1 << 9, np.uint32), [HashedLeaf((0,))])
    router = RouterMachine(0, 1, 1, h1, GRID, max_in_flight=8)
    router.on(LedgerTip(0, 0))
    router.on(insert(1))
    router.publish(posts(*[7] * MEMORY))
    return router


def routed_by(sends: list[Send]) -> RoutedObjects:
    [(worker, frame)] = sent(sends, "worker", RoutedObjects)
    assert worker == 0
    return frame  # type: ignore[no-any-return]


def test_the_only_worker_gets_a_batch_whole_with_any_term_chosen() -> None:
    router = one_worker_router()
    rows = posts(7, 8, 7)  # nobody asks for term 8
    batch, lsn, sends = router.publish(rows)
    frame = routed_by(sends)
    assert (frame.batch, frame.lsn, frame.needs, len(frame.chosen)) == (batch, lsn, 1, 0)
    assert frame.row.tolist() == [0, 1, 2]
    assert frame.term.tolist() == rows.term.tolist() == [7, 8, 7]
    assert frame.term_off.tolist() == [0, 1, 2, 3]
    assert router.counters.routed == MEMORY + 3
    close(router, batch)
    assert router.in_flight == 1


def test_one_batch_in_some_is_looked_up() -> None:
    router = one_worker_router()
    router.max_in_flight = 99
    found = [router.publish(posts(7, 8))[2] for _ in range(2 * PROBED)]
    assert [len(routed_by(sends).row) for sends in found] == ([2] * (PROBED - 1) + [1]) * 2
    assert router.counters.discarded == 2
    router.workers = 2  # whoever owns a unit must be asked now
    assert len(routed_by(router.publish(posts(7, 8))[2]).row) == 1
