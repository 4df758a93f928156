"""What a merger that loses sessions answers, and when it drops them."""

from __future__ import annotations

from unittest import mock

from ps2stream.merger import leaving
from ps2stream.merger.records import LeftRecord
from ps2stream.protocol.frame import Frame, decode
from ps2stream.protocol.messages.handover import HandoverRecords, HandoverRequest, HandoverStep
from tests.support.handing import SWITCH, Handing
from tests.support.merging import credit


def test_records_come_in_several_answers() -> None:
    world = Handing()
    for _ in range(30):
        world.publish(6)
    world.switch(2)
    answers: list[HandoverRecords] = []

    def note(frame: Frame) -> bool:
        answers.extend([frame] if isinstance(frame, HandoverRecords) else [])
        return False

    world.lose = note
    with mock.patch.object(leaving, "SENT_BYTES", 1 << 10):
        world.pass_watermark(SWITCH)
    assert len(answers) > 5
    assert [answer.last for answer in answers] == [0] * (len(answers) - 1) + [1]
    positions = [answer.position for answer in answers]
    assert positions[1:] == [answer.end for answer in answers[:-1]]
    world.attach_all()
    world.check(60)


def test_what_was_acknowledged_does_not_come_along() -> None:
    world = Handing()
    world.attach_all()
    world.publish(6)
    world.publish(6)
    world.send(0, credit(3, world.epoch, 2, 100, 2))
    world.switch(2)
    world.pass_watermark(SWITCH)
    world.attach_all()
    world.check(4)
    assert world.clients[3].repeats == 2  # of four; the two others were acknowledged
    assert world.clients[5].repeats == 4


def test_a_request_before_the_table_is_known_waits_for_it() -> None:
    world = Handing()
    world.publish(6)
    request = HandoverRequest(1, SWITCH, HandoverStep.NUMBERS, 0)
    sent: list[Frame] = []

    def note(frame: Frame) -> bool:
        sent.append(frame)
        return True

    world.lose = note
    world.send(0, request)
    assert not sent
    world.switch(2)
    world.pass_watermark(SWITCH)
    assert any(type(frame).__name__ == "HandoverNumbers" for frame in sent)


def test_a_request_of_an_earlier_change_is_ignored() -> None:
    world = Handing()
    world.publish(6)
    world.switch(2)
    world.lose = lambda _: True
    world.pass_watermark(SWITCH)
    world.send(0, HandoverRequest(1, SWITCH - 1, HandoverStep.DROP, 0))
    assert not [d for _, d in world.logs[0].scan() if isinstance(decode(d), LeftRecord)]
