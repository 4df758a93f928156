"""What a merger that gains sessions writes, requests and waits for."""

from __future__ import annotations

from ps2stream.merger.arriving import REPEAT
from ps2stream.merger.records import ArrivedRecord, MatchedRecord, TakenOverRecord
from ps2stream.protocol.frame import decode
from ps2stream.protocol.messages.handover import HandoverRecords
from tests.support.handing import SWITCH, Handing


def test_what_was_numbered_meanwhile_is_written_again_behind_what_came() -> None:
    world = Handing()
    world.publish(6)
    world.switch(2)
    world.lose = lambda frame: isinstance(frame, HandoverRecords)
    world.pass_watermark(SWITCH)
    world.publish(SWITCH)
    world.lose = lambda _: False
    world.tick(2 * REPEAT)
    assert world.held == {1}
    records = [decode(data) for _, data in world.logs[1].scan()]
    kinds = [type(record) for record in records if not isinstance(record, MatchedRecord)]
    assert kinds == [TakenOverRecord, ArrivedRecord]
    firsts = [r.first.tolist() for r in records if isinstance(r, MatchedRecord)]
    assert firsts == [[3, 3], [1, 1], [3, 3]]  # its own, the other's, and again its own
    world.attach_all()
    world.check(4)


def test_a_log_that_takes_nothing_delays_and_loses_nothing() -> None:
    world = Handing()
    world.publish(6)
    world.switch(2)
    world.logs[1].full = True
    world.pass_watermark(SWITCH)
    world.publish(SWITCH)
    world.tick(2 * REPEAT)
    assert not world.held
    world.logs[1].full = False
    world.tick(2 * REPEAT)
    assert world.held == {1}
    world.attach_all()
    world.check(4)


def test_no_chapter_begins_while_sessions_arrive() -> None:
    world = Handing()
    world.publish(6)
    world.switch(2)
    world.lose = lambda frame: isinstance(frame, HandoverRecords)
    world.pass_watermark(SWITCH)
    for _ in range(40):
        world.publish(SWITCH)
    world.tick(30)
    assert not any("Checkpoint" in type(decode(d)).__name__ for _, d in world.logs[1].scan())
    world.lose = lambda _: False
    world.tick(30)
    world.finish(11)
    world.tick(30)
    assert any("Checkpoint" in type(decode(d)).__name__ for _, d in world.logs[1].scan())
