"""Sessions that go from one merger to another, by the messages of both."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from ps2stream.merger.moving import HandoverFrame
from ps2stream.protocol.messages.handover import (
    HandoverNumbers,
    HandoverRecords,
    HandoverRequest,
)
from ps2stream.protocol.messages.sessions import StreamCredit, StreamDetach
from tests.support.handing import SESSIONS, SWITCH, Handing
from tests.support.merging import attach

MOVED = (3, 5)
"""The sessions that go to merger 1, of those of `Handing`."""


def begun() -> Handing:
    """Pairs at merger 0, and then another table."""
    world = Handing()
    world.attach_all()
    world.publish(6)
    world.switch(2)
    assert tuple(s for s in SESSIONS if world.maps.now.merger_of(s) == 1) == MOVED
    return world


def test_numbers_go_on_where_they_were_and_the_backlog_comes_along() -> None:
    world = begun()
    world.pass_watermark(SWITCH)
    world.publish(SWITCH)
    assert world.held == {1}
    world.finish(11)
    world.attach_all()
    world.publish(11)
    world.check(6)


def test_batches_of_before_are_numbered_by_the_merger_of_before() -> None:
    world = begun()
    world.publish(SWITCH)
    assert (1, world.offset - 4 + 1) not in world.kept
    world.publish(8)  # it was sent later, and has a lower LSN
    world.pass_watermark(SWITCH)
    assert (1, world.offset - 8 + 1) in world.kept
    world.attach_all()
    world.check(6)


@pytest.mark.parametrize("frame", [HandoverRequest, HandoverNumbers, HandoverRecords])
def test_what_gets_lost_is_requested_again(frame: type) -> None:
    world = begun()
    left = [3]

    def lose(sent: object) -> bool:
        left[0] -= isinstance(sent, frame)
        return isinstance(sent, frame) and left[0] >= 0

    world.lose = lose
    world.pass_watermark(SWITCH)
    assert world.held == set()
    world.tick(60)
    assert world.held == {1}
    world.attach_all()
    world.check(2)


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("frame", typing.get_args(HandoverFrame))
def test_a_death_before_any_message_loses_and_doubles_nothing(frame: type, victim: int) -> None:
    world = begun()
    world.lose = lambda sent: isinstance(sent, frame)
    world.pass_watermark(SWITCH)
    world.kill(victim)
    world.lose = lambda _: False
    world.tick(30)
    world.publish(SWITCH)
    world.kill(victim)
    world.tick(30)
    assert world.held == {1}
    world.kill(victim)
    world.finish(11)
    world.attach_all()
    world.publish(11)
    world.check(6)


def test_a_session_comes_back_with_what_it_was_numbered_elsewhere() -> None:
    world = begun()
    world.pass_watermark(SWITCH)
    world.publish(SWITCH)
    world.finish(11)
    world.publish(11)
    world.switch(1, 12)
    world.pass_watermark(12)
    world.publish(12)
    assert world.held == {0, 1}
    world.finish(13)
    for victim in (0, 1):
        world.kill(victim)
    world.attach_all()
    world.publish(13)
    world.check(10)


def test_a_stream_waits_for_its_session_unless_it_is_withdrawn() -> None:
    world = begun()
    world.attach_all()
    before = {s: len(world.clients[s].attached) for s in MOVED}
    world.send(1, StreamDetach(MOVED[1], world.epoch))
    world.pass_watermark(SWITCH)
    assert [len(world.clients[s].attached) - before[s] for s in MOVED] == [1, 0]


@pytest.mark.parametrize("order", [(50, 51), (51, 50)])
def test_of_two_streams_that_wait_for_a_session_the_older_one_is_closed(
    order: tuple[int, int],
) -> None:
    world = begun()
    for epoch in order:
        stream = dataclasses.replace(attach(3, epoch=epoch), since=SWITCH)
        world.send(1, stream, stream)
    assert set(world.clients[3].closed) == {50}
    world.pass_watermark(SWITCH)
    assert world.clients[3].attached[-1].epoch == 51
    assert 51 not in world.clients[3].closed


def test_a_merger_ignores_streams_of_sessions_that_it_has_not() -> None:
    world = begun()
    world.pass_watermark(SWITCH)
    count = len(world.clients[3].attached)
    world.send(0, attach(3, epoch=99), StreamCredit(3, 99, 0, 1, 1, 1))
    assert len(world.clients[3].attached) == count
    world.send(1, dataclasses.replace(attach(3, epoch=99), since=SWITCH + 1))  # it is behind
    assert len(world.clients[3].attached) == count
