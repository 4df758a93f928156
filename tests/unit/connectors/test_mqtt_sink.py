"""ps2stream/connectors/mqtt_sink.py: topics, and what a broker's answers mean."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.connectors.deliveries import DeliveryItem
from ps2stream.connectors.mqtt_publisher import BrokerAnswer, MqttPublisher, OutgoingMessage
from ps2stream.connectors.mqtt_sink import MqttMessages, MqttReceiver, MqttTopics, escape_level
from ps2stream.connectors.sink_loop import SinkPart, SinkVerdict
from ps2stream.errors import InvalidArgument
from ps2stream.v1 import delivery_pb2

FINE, QUOTA, DENIED = BrokerAnswer(0, ""), BrokerAnswer(0x97, "quota"), BrokerAnswer(0x87, "no")


@given(st.text(max_size=20), st.text(max_size=20))
def test_an_id_is_one_level_and_no_other_id_is_the_same(one: str, other: str) -> None:
    level = escape_level(one)
    assert not set("+#/$\x00\n") & set(level)
    assert level != "%gap"
    assert (level == escape_level(other)) == (one == other)


def test_topics_are_made_of_the_template() -> None:
    topics = MqttTopics("a/{session}/{query}", "$SYS/#")
    assert topics.name("q+1") == "a/%24SYS%2F%23/q%2B1"
    assert topics.name("{session}") == "a/%24SYS%2F%23/{session}"
    assert topics.name(None) == "a/%24SYS%2F%23/%gap"


@pytest.mark.parametrize("template", ["", "a/+", "a/#", "$a", "a\n", "{seq}", "{", "x" * 70_000])
def test_a_template_that_is_no_topic_is_refused(template: str) -> None:
    with pytest.raises(InvalidArgument, match="topic"):
        MqttTopics(template, "s")


class ScriptedPublisher(MqttPublisher):
    """Answers as told; a broker that has quotas is not at hand."""

    def __init__(self, *answers: list[BrokerAnswer] | None) -> None:
        self.answers = list(answers)
        self.sent: list[OutgoingMessage] = []
        self.most_bytes, self.window = 0, 20

    def send(self, message: OutgoingMessage) -> int:
        self.sent.append(message)
        return len(self.sent)

    def wait(self, numbers: Sequence[int], limit_s: float) -> list[BrokerAnswer] | None:
        found = self.answers.pop(0)
        assert found is None or len(found) == len(numbers)
        return found


def attempts_with(publisher: ScriptedPublisher) -> tuple[list[SinkVerdict], MqttMessages]:
    """The verdicts on three matches until one lasts."""
    receiver = MqttReceiver(publisher, MqttTopics("{query}", "s"), "s")
    items = [DeliveryItem(n, "q", json.dumps({"seq": n, "text": "x" * n})) for n in (1, 2, 3)]
    body = receiver.prepare(SinkPart("p", items, delivery_pb2.Cursor()))
    verdicts: list[SinkVerdict] = []
    while not verdicts or verdicts[-1] is SinkVerdict.AGAIN:
        verdicts.append(asyncio.run(receiver.attempt("p", body)).verdict)
    return verdicts, body


def numbers_of(publisher: ScriptedPublisher) -> list[int]:
    return [json.loads(message.payload)["seq"] for message in publisher.sent]


def test_a_failure_that_may_pass_is_repeated_with_what_follows() -> None:
    publisher = ScriptedPublisher(None, [FINE, QUOTA, FINE], [FINE, FINE])
    verdicts, _ = attempts_with(publisher)
    assert verdicts == [SinkVerdict.AGAIN, SinkVerdict.AGAIN, SinkVerdict.ACCEPTED]
    assert numbers_of(publisher) == [1, 2, 3, 2, 3]


def test_only_what_was_refused_is_put_away() -> None:
    publisher = ScriptedPublisher([DENIED, QUOTA, FINE], [FINE, FINE])
    verdicts, body = attempts_with(publisher)
    assert verdicts == [SinkVerdict.AGAIN, SinkVerdict.REFUSED]
    receiver = MqttReceiver(publisher, MqttTopics("t", "s"), "s")
    [letter] = receiver.describe(body)
    assert (letter["match"]["seq"], letter["reason"]) == (1, "no")


def test_no_more_are_under_way_than_the_broker_wants() -> None:
    publisher = ScriptedPublisher([FINE, FINE], [QUOTA], [FINE])
    publisher.window = 2
    verdicts, _ = attempts_with(publisher)
    assert verdicts == [SinkVerdict.AGAIN, SinkVerdict.ACCEPTED]
    assert numbers_of(publisher) == [1, 2, 3, 3]


def test_a_packet_that_the_broker_does_not_take_is_not_sent() -> None:
    publisher = ScriptedPublisher([])
    publisher.most_bytes = 10
    verdicts, body = attempts_with(publisher)
    assert verdicts == [SinkVerdict.REFUSED]
    assert len(body.refused) == 3
    assert not publisher.sent
