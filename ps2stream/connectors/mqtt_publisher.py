"""Publishing to an MQTT 5 broker with QoS 1: in order, over all connections, with its answers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from ps2stream.connectors.mqtt_broker import (
    BAD_LOGIN,
    BANNED,
    NOT_ALLOWED,
    TAKEN_OVER,
    WAIT_S,
    BrokerAddress,
    secure_client,
    where,
)
from ps2stream.errors import FailedPrecondition, PermissionDenied, Unauthenticated, Unavailable
from ps2stream.extras import import_optional

log = logging.getLogger(__name__)

IN_FLIGHT = 20
"""Most messages that are published and not acknowledged; the broker may want fewer."""
OVERHEAD_BYTES = 64
"""Bytes of a packet beside topic, payload and properties, at most."""


class BrokerAnswer(NamedTuple):
    """What the broker's PUBACK said of a message. code: 0x80 and above are failures."""

    code: int
    reason: str


class OutgoingMessage(NamedTuple):
    """A message. properties: user properties, as pairs of name and value."""

    topic: str
    payload: bytes
    properties: tuple[tuple[str, str], ...]

    @property
    def size(self) -> int:
        """Bytes of its packet, at most."""
        pairs = sum(len(n.encode()) + len(v.encode()) + 5 for n, v in self.properties)
        return len(self.topic.encode()) + len(self.payload) + pairs + OVERHEAD_BYTES


class MqttPublisher:
    """A publisher. What is not acknowledged when a connection breaks is sent again, in order, on
    the next one; a process that ends forgets it. Raises InvalidArgument."""

    def __init__(self, address: BrokerAddress, client_id: str) -> None:
        mqtt = import_optional("paho.mqtt.client", "A sink of MQTT messages")
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        def make_properties() -> Any:
            return Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]

        self._make_properties = make_properties
        self.host, self.port = where(address)
        self._client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id, protocol=mqtt.MQTTv5
        )
        secure_client(self._client, address)
        self._client.max_inflight_messages_set(IN_FLIGHT)
        self._client.reconnect_delay_set(1, 30)
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = self._on_disconnect
        self._client.on_publish = self._on_publish
        self._changed = threading.Condition()
        self._answers: dict[int, BrokerAnswer] = {}
        self._connected = False
        self._failed: Exception | None = None
        self.window = IN_FLIGHT
        """How many messages the broker takes before it acknowledges the first."""
        self.most_bytes = 0
        """The largest packet that the broker takes; 0: it named no limit."""

    def open(self) -> None:
        """Connects. Raises Unavailable, or the reason for which the broker refused."""
        try:
            self._client.connect(self.host, self.port)
        except (OSError, ValueError) as error:
            problem = f"no MQTT broker at {self.host}:{self.port}: {error}"
            raise Unavailable(problem) from None
        self._client.loop_start()
        with self._changed:
            self._changed.wait_for(lambda: self._connected or self._failed, WAIT_S)
            if self._failed is not None:
                raise self._failed
            if not self._connected:
                raise Unavailable(f"the MQTT broker at {self.host}:{self.port} did not answer")

    def close(self) -> None:
        """Disconnects. What is not acknowledged is not sent again."""
        self._client.disconnect()
        self._client.loop_stop()

    def send(self, message: OutgoingMessage) -> int:
        """Hands a message over to be sent; returns the number under which `wait` knows it. No more
        than `window` are to be under way."""
        properties: Any = self._make_properties()
        properties.PayloadFormatIndicator = 1
        properties.ContentType = "application/json"
        properties.UserProperty = list(message.properties)
        sent = self._client.publish(message.topic, message.payload, qos=1, properties=properties)
        return int(sent.mid)

    def wait(self, numbers: Sequence[int], limit_s: float) -> list[BrokerAnswer] | None:
        """Returns the answers to all these messages, None if some are missing after `limit_s`
        seconds. Raises what ended the connection for good."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._failed or all(number in self._answers for number in numbers), limit_s
            )
            if self._failed is not None:
                raise self._failed
            if any(number not in self._answers for number in numbers):
                return None
            return [self._answers.pop(number) for number in numbers]

    # --- on paho's thread ---------------------------------------------------------

    def _on_connect(self, _: Any, __: Any, ___: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            kinds: dict[int, type[Exception]] = {
                BAD_LOGIN: Unauthenticated, NOT_ALLOWED: PermissionDenied, BANNED: PermissionDenied,
            }  # fmt: skip
            if (kind := kinds.get(reason.value)) is not None:
                self._end_publisher(kind(f"the MQTT broker refused the connection: {reason}"))
            else:
                log.warning("the MQTT broker refused the connection: %s", reason)
            return
        with self._changed:
            self.window = min(getattr(properties, "ReceiveMaximum", IN_FLIGHT), IN_FLIGHT)
            self.most_bytes = getattr(properties, "MaximumPacketSize", 0)
            self._connected = True
            self._changed.notify_all()
        log.info("connected to %s:%d", self.host, self.port)

    def _on_disconnect(self, _: Any, __: Any, ___: Any, reason: Any, ____: Any) -> None:
        if reason.value == TAKEN_OVER:
            self._end_publisher(FailedPrecondition("another MQTT client has the same client id"))
        elif reason.is_failure:
            log.warning("the connection to the MQTT broker broke: %s", reason)

    def _on_publish(self, _: Any, __: Any, number: int, reason: Any, ___: Any) -> None:
        with self._changed:
            self._answers[number] = BrokerAnswer(int(reason.value), str(reason))
            self._changed.notify_all()

    def _end_publisher(self, error: Exception) -> None:
        with self._changed:
            self._failed = self._failed or error
            self._changed.notify_all()
