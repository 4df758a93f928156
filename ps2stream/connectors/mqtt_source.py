"""MQTT to service: a message is acknowledged to the broker once its post is durable."""

from __future__ import annotations

import base64
import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from ps2stream.client.client import Client
from ps2stream.connectors.counts import ConnectorCounts, CountsReporter
from ps2stream.connectors.mapping import ConvertedPosts, RecordFields
from ps2stream.connectors.mqtt_broker import BrokerAddress, BrokerMessage, MqttSession
from ps2stream.connectors.publisher import SourcePublisher
from ps2stream.connectors.rejected_file import append_records
from ps2stream.connectors.retry import ConnectorAbandoned
from ps2stream.errors import InvalidArgument, invalid

log = logging.getLogger(__name__)

MOST = 2000
DRAIN_S = 15.0


@dataclass(frozen=True, slots=True)
class MqttSourceOptions:
    """Options of a source. bad: what becomes of messages that are no posts: `stop` ends with an
    error, `skip` counts them, `file` appends them to `dead_letters`. window: messages not
    acknowledged at a time. expiry_s: how long the broker keeps the session while nobody is
    connected."""

    address: BrokerAddress
    topics: Sequence[str]
    client_id: str
    bad: Literal["stop", "skip", "file"] = "stop"
    dead_letters: Path | None = None
    window: int = 1000
    expiry_s: int = 7 * 86_400


class MessageFields(Protocol):
    """What makes posts of messages. topics, payloads and ids are of the same messages; a message
    without an id of its own gets the one of `ids`."""

    def convert_messages(
        self, topics: Sequence[str], payloads: Sequence[bytes], ids: Sequence[str]
    ) -> ConvertedPosts:
        """Returns the posts, and what is wrong with messages that are none."""


class JsonMessages:
    """Messages that are posts as objects of JSON, wherever they come from."""

    def __init__(self, fields: RecordFields) -> None:
        self._fields = fields

    def convert_messages(
        self, topics: Sequence[str], payloads: Sequence[bytes], ids: Sequence[str]
    ) -> ConvertedPosts:
        """Returns the posts of messages."""
        return self._fields.convert(payloads, ids)


class MqttSource:
    """Publishes until `stop` is set. What was published with QoS 1 or 2 is published at least
    once here; after a lost connection or a crash, what was not acknowledged comes again. A
    message without an id gets one of its topic and content, so a repeat has the same."""

    def __init__(
        self,
        client: Client,
        fields: MessageFields,
        options: MqttSourceOptions,
        counts: ConnectorCounts,
        teller: CountsReporter,
    ) -> None:
        self._fields = fields
        self._options = options
        self._counts = counts
        self._teller = teller
        self._abandon = threading.Event()
        self._publisher = SourcePublisher(client, counts, self._abandon)
        broker = options.address, options.client_id, options.topics
        self._session = MqttSession(*broker, options.window, options.expiry_s)

    def run(self, stop: threading.Event, ready: Callable[[], None]) -> None:
        """Runs the source; calls `ready` once the topics are subscribed to. Raises what no retry
        can help."""
        over = threading.Event()
        limit = threading.Thread(target=self._limit_drain, args=(stop, over), daemon=True)
        limit.start()
        try:
            self._session.open()
            ready()
            while not stop.is_set():
                if taken := self._session.take(MOST, 0.2):
                    self._counts.add("taken", len(taken))
                    self._publish_messages(taken)
                if self._teller.due():
                    self._teller.tell()
        except ConnectorAbandoned:
            log.warning("the messages in flight were not answered; they will be received again")
        finally:
            over.set()
            self._session.close()
            limit.join()

    def _limit_drain(self, stop: threading.Event, over: threading.Event) -> None:
        """Abandons what is still under way DRAIN_S after the stop was requested."""
        while not stop.wait(0.2):
            if over.is_set():
                return
        if not over.wait(DRAIN_S):
            self._abandon.set()

    def _publish_messages(self, taken: list[BrokerMessage]) -> None:
        messages = [came.message for came in taken]
        ids = [_make_id(message) for message in messages]
        topics = [message.topic for message in messages]
        payloads = [bytes(message.payload) for message in messages]
        found = self._fields.convert_messages(topics, payloads, ids)
        bad = found.bad
        if bad and self._options.bad == "stop":
            first = min(bad)
            if first:  # what was before it is done
                self._publish_messages(taken[:first])
            raise _refusal_error(messages[first], bad[first])
        if len(found.posts):
            for row, reason in self._publisher.publish(found.posts):
                bad[found.rows[row]] = reason
        if bad:
            self._put_away_messages([(messages[i], reason) for i, reason in sorted(bad.items())])
            self._counts.add("bad", len(bad))
        self._session.done(taken)
        self._counts.add("done", len(taken) - len(bad))

    def _put_away_messages(self, bad: list[tuple[Any, str]]) -> None:
        if self._options.bad == "stop":  # only the service found it wrong
            raise _refusal_error(*bad[0])
        if self._options.dead_letters is None:
            for message, reason in bad[:10]:
                log.warning("skipped a message of %s: %s", message.topic, reason)
            return
        records = (
            {"topic": m.topic, "reason": why, "payload": base64.b64encode(m.payload).decode()}
            for m, why in bad
        )
        append_records(self._options.dead_letters, records)


def _make_id(message: Any) -> str:
    """Returns the id of a message without one, a hash, as it has no place that would name it."""
    what = message.topic.encode() + b"\0" + bytes(message.payload)
    return hashlib.sha256(what).hexdigest()[:32]


def _refusal_error(message: Any, reason: str) -> InvalidArgument:
    return invalid(f"message of {message.topic}", reason)
