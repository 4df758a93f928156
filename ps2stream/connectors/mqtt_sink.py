"""Service to MQTT: a message for each match, acknowledged once the broker has it."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from ps2stream.connectors.deliveries import DeliveryItem
from ps2stream.connectors.mqtt_publisher import BrokerAnswer, MqttPublisher, OutgoingMessage
from ps2stream.connectors.sink_loop import SinkAttempt, SinkPart, SinkVerdict
from ps2stream.errors import invalid

ATTEMPT_S = 15.0
GAP_LEVEL = "%gap"
"""What stands for the query of a gap; no escaped id is the same."""
TOPIC_BYTES = 60_000
"""Most bytes of a template; MQTT has 65,535 for a topic, and an escaped id at most 384."""
FAILURE = 0x80
PASSING = frozenset({0x80, 0x83, 0x97})
"""Failures that may pass: an unspecified one, one of the implementation, a quota."""
TOO_LARGE = BrokerAnswer(0x95, "Packet too large")
_FIELD = re.compile(r"\{(session|query)\}")
_CONTROLS = "\x00-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff"
_SPECIAL = re.compile(f"[%+#/${_CONTROLS}]")


class MqttTopics:
    """Makes topics from a template with {session} and {query}. Raises InvalidArgument."""

    def __init__(self, template: str, session: str) -> None:
        plain = _FIELD.sub("x", template)
        if set("{}") & set(plain):
            raise invalid("topic", "expected {session} and {query} as the only fields in braces")
        if not plain or set("+#") & set(plain) or re.search(f"[{_CONTROLS}]", plain):
            raise invalid("topic", "expected a topic without +, # and control characters")
        if template.startswith("$"):
            raise invalid("topic", "must not begin with $, as the broker's own topics do")
        if len(template.encode()) > TOPIC_BYTES:
            raise invalid("topic", f"expected at most {TOPIC_BYTES} bytes")
        self._template = template
        self._session = escape_level(session)

    def name(self, query_id: str | None) -> str:
        """Returns the topic of a query's matches; None stands for a gap."""
        level = GAP_LEVEL if query_id is None else escape_level(query_id)
        values = {"session": self._session, "query": level}
        return _FIELD.sub(lambda found: values[found[1]], self._template)


def escape_level(text: str) -> str:
    """Returns the text as one level of a topic: wildcards, slashes, $ and control characters are
    percent-encoded, and the percent sign, so that no two texts become one level."""

    def encode(found: re.Match[str]) -> str:
        return "".join(f"%{byte:02X}" for byte in found[0].encode())

    return _SPECIAL.sub(encode, text)


@dataclass(slots=True)
class MqttMessages:
    """The messages of a part. left: those without an answer that lasts, in order. numbers: of those
    that are sent, or none. refused: those that the broker does not want, and why."""

    left: list[OutgoingMessage]
    numbers: list[int] = field(default_factory=list)
    refused: list[tuple[OutgoingMessage, str]] = field(default_factory=list)

    def settle(self, answers: list[BrokerAnswer]) -> str:
        """Takes the answers to the first that are left. What follows on a failure that may pass is
        left with it, as it would come before it otherwise; returns that failure, or nothing."""
        for i, (message, answer) in enumerate(zip(self.left, answers, strict=False)):
            if answer.code in PASSING:
                self.left = self.left[i:]
                return answer.reason
            if answer.code >= FAILURE:
                self.refused.append((message, answer.reason))
        self.left = self.left[len(answers) :]
        return ""


class MqttReceiver:
    """A broker. Messages of a part are published in order with QoS 1; the part is accepted once
    each has its PUBACK."""

    def __init__(self, publisher: MqttPublisher, topics: MqttTopics, session: str) -> None:
        self._publisher = publisher
        self._topics = topics
        self._session = session

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._publisher.open)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._publisher.close)

    def measure(self, item: DeliveryItem) -> int:
        """Returns the length of the item's JSON."""
        return len(item.body)

    def prepare(self, part: SinkPart) -> MqttMessages:
        """Returns the messages of a part, one for each match."""
        return MqttMessages([self._build_message(item) for item in part.items])

    async def attempt(self, name: str, body: MqttMessages) -> SinkAttempt:
        """Publishes what is left, or waits on for the answers to what was published before."""
        self._refuse_large(body)
        while body.left:
            if not body.numbers:
                sent = body.left[: self._publisher.window]
                body.numbers = [self._publisher.send(message) for message in sent]
            answers = await asyncio.to_thread(self._publisher.wait, body.numbers, ATTEMPT_S)
            if answers is None:
                problem = f"the broker did not acknowledge within {ATTEMPT_S:g} s"
                return SinkAttempt(SinkVerdict.AGAIN, problem)
            body.numbers = []
            if failure := body.settle(answers):
                return SinkAttempt(SinkVerdict.AGAIN, f"answered {failure}")
        if body.refused:
            return SinkAttempt(SinkVerdict.REFUSED, f"answered {body.refused[0][1]}")
        return SinkAttempt(SinkVerdict.ACCEPTED)

    def describe(self, body: MqttMessages) -> Any:
        """Returns the messages that the broker did not take: refused, or left when it was given
        up."""
        found = [*body.refused, *((message, "given up") for message in body.left)]
        return [
            {"topic": message.topic, "reason": reason, "match": json.loads(message.payload)}
            for message, reason in found
        ]

    def _refuse_large(self, body: MqttMessages) -> None:
        """Refuses messages for which the broker would drop the connection."""
        most = self._publisher.most_bytes
        if body.numbers or not most:
            return
        body.refused += [(m, TOO_LARGE.reason) for m in body.left if m.size > most]
        body.left = [m for m in body.left if m.size <= most]

    def _build_message(self, item: DeliveryItem) -> OutgoingMessage:
        properties = [("ps2stream-seq", str(item.number)), ("ps2stream-session", self._session)]
        if item.query_id is not None:
            properties.append(("ps2stream-query", item.query_id))
        # MQTT allows no control characters in properties; the payload has the ids as they are.
        clean = tuple((name, re.sub(f"[{_CONTROLS}]", "\ufffd", text)) for name, text in properties)
        return OutgoingMessage(self._topics.name(item.query_id), item.body.encode(), clean)
