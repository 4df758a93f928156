"""Inserts and deletes on their way to the sequencer: what leaves together, what may wait."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np
import pytest

from ps2stream.dispatcher import updates
from ps2stream.language.query_rows import delete_rows
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.messages.updates import UpdateDecision
from tests.support.desk import Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_updates_leave_together_while_the_sequencer_is_busy(desk: Desk) -> None:
    one = delete_rows(strings_to_column(["q"]))
    futures: list[Future[UpdateDecision]] = [desk.edge.update(one, [""], [""]) for _ in range(3)]
    assert (desk.router.asked, desk.posts) == (1, 1)
    desk.edge.on(UpdateDecision(1, np.zeros(1, np.uint8), np.ones(1, np.int64)))
    assert (desk.router.asked, desk.posts) == (3, 2)
    assert not any(f.done() for f in futures)  # the router answers, once they are visible


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


def test_waiting_inserts_are_bounded_and_deletes_have_room_of_their_own(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "WAITING_UPDATES", 2)
    drop = delete_rows(strings_to_column(["q"]))
    add = drop.replace(kind=np.ones(1, np.uint8))
    inserts = [desk.edge.update(add, ["s"], [""]) for _ in range(3)]
    deletes = [desk.edge.update(drop, [""], [""]) for _ in range(3)]
    for lane in (inserts, deletes):
        assert [f.done() for f in lane] == [False, False, True]
        assert "waiting_updates" in str(lane[2].exception(0))
    for seq in (1, 2):
        desk.show_decision(seq)
    assert not desk.edge.update(add, ["s"], [""]).done()


def test_the_bytes_of_waiting_updates_are_bounded_by_lane(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop = delete_rows(strings_to_column(["q"]))
    add = drop.replace(kind=np.ones(1, np.uint8))
    monkeypatch.setattr(updates, "WAITING_BYTES", 2 * len(drop.encode()))
    for rows_, name in ((add, "inserts"), (drop, "deletes")):
        lane = [desk.edge.update(rows_, [""], [""]) for _ in range(3)]
        assert [f.done() for f in lane] == [False, False, True]
        assert f"bytes of {name} are waiting" in str(lane[2].exception(0))
        assert "waiting_bytes" in str(lane[2].exception(0))
    for seq in (1, 2):
        desk.show_decision(seq)
    assert not desk.edge.update(add, [""], [""]).done(), "what is answered takes no room"
