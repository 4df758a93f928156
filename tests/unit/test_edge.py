"""The dispatcher's edge: who is answered, which stream counts, how much leaves at a time."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from ps2stream.batch import strings_to_column
from ps2stream.cluster.intake import ROWS, Intake
from ps2stream.messages import Attach, Completed, Delivery, Detach, SessionGrant, UpdateDecision
from ps2stream.queries import delete_rows
from ps2stream.service.gateway import Publication
from tests.unit.test_intake import Desk, rows

SESSION = 9


@pytest.fixture
def desk() -> Desk:
    return Desk()


def attached(desk: Desk, sink: list[bytes | None]) -> Any:
    future = desk.edge.attach("s", 0, 8, 1 << 20, sink.append)
    desk.edge._answer(SessionGrant(desk.edge._seq, SESSION))
    return future.result()


def deliver(desk: Desk, epoch: int, data: bytes, closed: int = 0) -> None:
    desk.edge._answer(Delivery(SESSION, epoch, closed, np.frombuffer(data, np.uint8)))


def test_a_later_stream_ends_the_earlier_one_and_outlives_its_end(desk: Desk) -> None:
    first: list[bytes | None] = []
    second: list[bytes | None] = []
    old, new = attached(desk, first), attached(desk, second)
    assert new.epoch > old.epoch  # also while the clock stands
    assert (first, second) == ([None], [])
    old.close()
    deliver(desk, old.epoch, b"late")
    deliver(desk, new.epoch, b"match")
    assert (first, second) == ([None], [b"match"])
    assert desk.edge.status()["streams"] == 1


def test_a_stream_that_moved_to_another_dispatcher_ends_here(desk: Desk) -> None:
    sink: list[bytes | None] = []
    stream = attached(desk, sink)
    deliver(desk, stream.epoch - 1, b"", closed=1)  # said of an older one
    assert (sink, desk.edge.status()["streams"]) == ([], 1)
    deliver(desk, stream.epoch, b"", closed=1)
    assert (sink, desk.edge.status()["streams"]) == ([None], 0)
    stream.close()
    assert isinstance(desk.sent[-1].frame, Detach)


def test_epochs_follow_the_clock_which_dispatchers_share(desk: Desk) -> None:
    one = attached(desk, [])
    desk.edge.clock_ms = lambda: 5_000
    other = Desk()
    other.edge.clock_ms = lambda: 4_000
    for _ in range(3):
        assert attached(other, []).epoch > one.epoch
    assert attached(desk, []).epoch > attached(other, []).epoch


def test_control_goes_to_the_sessions_merger(desk: Desk) -> None:
    desk.router.mergers = 4
    attached(desk, [])
    [send] = [s for s in desk.sent if isinstance(s.frame, Attach)]
    assert send.to == ("merger", SESSION % 4)


def test_updates_wait_until_all_that_left_are_decided(desk: Desk) -> None:
    one = delete_rows(strings_to_column(["q"]))

    def ask() -> Future[UpdateDecision]:
        return desk.edge.update(one, [""], [""])

    def decide() -> int:
        desk.edge.on(UpdateDecision(1, np.zeros(1, np.uint8), np.ones(1, np.int64)))
        return desk.router.asked

    for _ in range(3):
        ask()
    assert decide() == 3  # the second and the third left together
    ask()
    assert [decide(), decide()] == [3, 4]


def test_no_more_batches_are_under_way_than_may_be(desk: Desk) -> None:
    futures = [desk.edge.publish(rows(ROWS)) for _ in range(4)]
    assert [f.done() for f in futures] == [True, True, True, False]
    assert len(desk.router.batches) == desk.router.max_in_flight


def test_who_waits_for_room_is_woken_by_it(desk: Desk) -> None:
    looked = threading.Event()

    class Watched(Intake):
        def __len__(self) -> int:
            looked.set()  # under the lock, which only the wait for room lets go
            return super().__len__()

    for _ in range(2):
        desk.edge.publish(rows(1))
    desk.edge._intake = Watched()
    for _ in range(3):
        desk.edge.publish(rows(1))
    looked.clear()
    found: list[Future[Publication]] = []
    waiting = threading.Thread(
        target=lambda: found.append(desk.edge.publish(rows(1), 1e6)), daemon=True
    )
    waiting.start()
    assert looked.wait(30)
    desk.edge.on(Completed(0, np.zeros(1, np.int64)))
    waiting.join(30)
    assert not waiting.is_alive()
    desk.edge.on(Completed(0, np.zeros(1, np.int64)))
    assert isinstance(found[0].result(), Publication)
