"""The batches under way: who has answered, what is sent again, and what kills workers."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ps2stream.dispatcher import open_batches as batches
from ps2stream.dispatcher.open_batches import LEAST_BYTES, ROWS, TEXT_BYTES
from ps2stream.errors import ResourceExhausted
from ps2stream.protocol.addresses import Address, Reply
from ps2stream.protocol.log_records import QuarantineRecord, SplitRecord
from ps2stream.protocol.messages.objects import (
    BatchContent,
    BatchesPartial,
    BatchWithdrawal,
    RoutedObjects,
    SuspectBegin,
)
from ps2stream.protocol.ticks import RESEND_TICKS
from tests.support.routers import (
    done,
    insert,
    machine,
    posts,
    resent,
    sent,
)
from tests.support.routing import object_rows


def test_a_batch_is_sent_again_when_a_worker_or_a_merger_is_replaced() -> None:
    router = machine()
    router.on(insert(1))
    _, _, first = router.publish(posts(7))
    assert router.joined(Address("worker", 1)) == []  # had no part of it
    assert router.joined(Address("worker", 0)) == [o for o in first if o.to.role == "worker"]
    router.on(done(0, 0))
    assert router.joined(Address("merger", 0)) == []
    assert router.joined(Address("merger", 1)) == first[1:]
    router.on(done(1, 0))
    assert router.joined(Address("merger", 1)) == []


def test_a_batch_that_stays_open_is_sent_again_at_growing_intervals() -> None:
    router = machine()
    router.on(insert(1))
    router.publish(posts(7))
    when = [t for t in range(200) if sent(router.tick(), "worker", RoutedObjects)]
    assert when == [RESEND_TICKS * k - 1 for k in (1, 2, 4)]


def test_a_batch_that_kills_is_divided_until_one_object_is_quarantined() -> None:
    router = machine(mergers=1)
    router.on(insert(1))
    router.publish(posts(7, 7, 7))
    worker = Address("worker", 0)
    for _ in range(batches.DEATHS - 1):
        assert [(f.batch, f.suspect) for f in resent(router)] == [(0, 0)]
    assert [(f.batch, f.suspect) for f in resent(router)] == [(0, 1)]
    assert [f.batch for f in resent(router)] == [0]  # it had not begun: it was another
    router.on(SuspectBegin(0, 0, 0))
    out = router.joined(worker)
    assert out[0] == Reply(out[0].frame)
    assert isinstance(out[0].frame, SplitRecord)
    assert out[0].frame.at == 1
    assert [f.batch for _, f in sent(out, "merger", BatchWithdrawal)] == [0]
    # The first part has the offset of the whole, whose late answers must not count for it.
    routed = [f for _, f in sent(out, "worker", RoutedObjects)]
    assert [(f.batch, f.attempt, f.suspect) for f in routed] == [(0, 1, 1), (1, 1, 1)]
    assert [(f.batch, f.oldest) for _, f in sent(out, "merger", BatchContent)] == [(0, 0), (1, 0)]
    router.on(done(0, 1))  # the second part is sound
    for _ in range(batches.DEATHS - 1):
        router.on(SuspectBegin(0, 0, 1))
        assert [f.batch for f in resent(router)] == [0]
    router.on(SuspectBegin(0, 0, 1))
    out = router.joined(worker)
    assert [type(o.frame) for o in out] == [QuarantineRecord, BatchWithdrawal]
    assert (router.in_flight, router.counters.quarantined) == (0, 1)


def test_what_was_not_under_way_when_a_worker_died_is_not_blamed() -> None:
    router = machine(mergers=1)
    router.on(insert(1))
    for _ in range(2):
        router.publish(posts(7, 7))
    for _ in range(batches.DEATHS):
        resent(router)
    router.on(SuspectBegin(0, 0, 0))
    router.on(SuspectBegin(0, -1, 0))  # it survived the first one
    assert [f.batch for f in resent(router)] == [0, 2]
    router.on(SuspectBegin(0, 2, 0))
    out = router.joined(Address("worker", 0))
    assert [f.batch for _, f in sent(out, "worker", RoutedObjects)] == [0, 2, 3]
    assert [f.at for o in out if isinstance(f := o.frame, SplitRecord)] == [3]


def test_what_silent_workers_keep_open_counts_by_its_size() -> None:
    router = machine()
    router.on(insert(1))
    for i in range(3):
        router.publish(object_rows([-20.0], [0.0], [(7,)]))
        router.on(BatchesPartial(0, np.array([i])))
        assert (router.active, router.in_flight) == (1, 1), "the other merger waits for more"
        router.on(BatchesPartial(1, np.array([i])))
        assert (router.active, router.in_flight) == (0, 0)
    router.publish(object_rows([-20.0] * ROWS, [0.0] * ROWS, [(7,)] * ROWS))
    for merger in (0, 1):
        router.on(BatchesPartial(merger, np.array([3, 99])))
    assert (router.active, router.in_flight) == (0, 1)
    assert router.oldest == 0
    for merger in (0, 1):
        router.on(done(merger, 0, 1, 2, 3))
    assert (router.active, router.in_flight, router.oldest) == (0, 0, 3 + ROWS)


def test_many_small_batches_that_are_held_up_fill_the_room_too() -> None:
    router = machine(mergers=1, max_in_flight=2)
    router.on(insert(1))
    most = 2 * TEXT_BYTES // LEAST_BYTES
    for i in range(most):
        router.publish(posts(7))
        router.on(BatchesPartial(0, np.array([i])))
    with pytest.raises(ResourceExhausted):
        router.publish(posts(7))
    router.on(done(0, most // 2))
    router.publish(posts(7))


def test_open_batches_are_counted_as_by_hand() -> None:
    rng = random.Random(7)
    router = machine(max_in_flight=10_000)
    router.on(insert(1))
    open_: dict[int, tuple[int, set[int], set[int]]] = {}  # LSN, waiting, partial, by offset
    lsn = 1
    for _ in range(2_000):
        match rng.choice(["publish", "insert", "partial", "partial", "complete", "complete"]):
            case "publish":
                offset, _, _ = router.publish(posts(*[7] * rng.randint(1, 3)))
                open_[offset] = lsn, {0, 1}, set()
            case "insert":
                lsn += 1
                router.on(insert(lsn))
            case what if open_:
                offset, merger = rng.choice(list(open_)), rng.randint(0, 1)
                if what == "partial":
                    router.on(BatchesPartial(merger, np.array([offset])))
                    open_[offset][2].add(merger)
                else:
                    router.on(done(merger, offset))
                    open_[offset][1].discard(merger)
                    open_ = {o: known for o, known in open_.items() if known[1]}
        assert router.oldest == min(open_, default=router.offset)
        assert router.watermark == min((known[0] for known in open_.values()), default=lsn)
        held = sum(waiting <= partial for _, waiting, partial in open_.values())
        assert router.active == len(open_) - held
        assert router.in_flight == router.active + held * LEAST_BYTES // TEXT_BYTES
