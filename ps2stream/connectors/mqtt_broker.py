"""An MQTT 5 session over all its connections: messages in order, each to be acknowledged."""

from __future__ import annotations

import logging
import ssl
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ps2stream.errors import (
    FailedPrecondition,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
    invalid,
)
from ps2stream.extras import import_optional
from ps2stream.security import is_loopback

log = logging.getLogger(__name__)

PORTS = {"mqtt": 1883, "mqtts": 8883}
WAIT_S = 15.0
TAKEN_OVER = 142
BAD_LOGIN, NOT_ALLOWED, BANNED = 134, 135, 138


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Address of a broker. url: mqtt://host[:port] or mqtts://host[:port], without a password.
    Files are PEM; without `ca` the authorities that this machine trusts count."""

    url: str
    username: str | None = None
    password_file: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


class BrokerMessage(NamedTuple):
    """A message, and the number of the connection that brought it."""

    message: Any
    connection: int


class MqttSession:
    """A persistent session. Its messages wait for `take`, at most `window` that are not
    acknowledged. QoS 0 knows no acknowledgement: its messages are dropped while so many wait.
    Raises InvalidArgument."""

    def __init__(
        self,
        address: BrokerAddress,
        client_id: str,
        topics: Sequence[str],
        window: int,
        expiry_s: int,
    ) -> None:
        mqtt = import_optional("paho.mqtt.client", "A source of MQTT messages")
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties
        from paho.mqtt.subscribeoptions import SubscribeOptions

        self.host, self.port = where(address)
        self._kept: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        self._kept.SessionExpiryInterval = expiry_s
        self._kept.ReceiveMaximum = window
        # What is retained is sent to a new subscription only, not after each connection.
        how = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        self._wanted = [(topic, how) for topic in topics]
        self._client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id, protocol=mqtt.MQTTv5, manual_ack=True
        )
        secure_client(self._client, address)
        self._client.reconnect_delay_set(1, 30)
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = self._on_disconnect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message
        self._changed = threading.Condition()
        self._waiting: deque[BrokerMessage] = deque()
        self._window = window
        self._drops = False
        self._connection = 0
        self._ready = False
        self._failed: Exception | None = None

    def open(self) -> None:
        """Connects, and returns once the topics are subscribed to. Raises Unavailable, or the
        reason for which the broker refused."""
        try:
            self._client.connect(self.host, self.port, clean_start=False, properties=self._kept)
        except (OSError, ValueError) as error:
            problem = f"no MQTT broker at {self.host}:{self.port}: {error}"
            raise Unavailable(problem) from None
        self._client.loop_start()
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._failed, WAIT_S)
            if self._failed is not None:
                raise self._failed
            if not self._ready:
                raise Unavailable(f"the MQTT broker at {self.host}:{self.port} did not answer")

    def close(self) -> None:
        """Disconnects; the broker keeps the session until it expires."""
        self._client.disconnect()
        self._client.loop_stop()

    def take(self, most: int, wait: float) -> list[BrokerMessage]:
        """Returns what is there, in order; empty after `wait` seconds without any. Raises what
        ended the session."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._failed, wait)
            if self._failed is not None:
                raise self._failed
            return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def done(self, taken: Sequence[BrokerMessage]) -> None:
        """Acknowledges messages. One of an earlier connection comes again by itself, and its number
        may now be another message's: it is not acknowledged by mistake."""
        for came in taken:
            if came.message.qos and came.connection == self._connection:
                self._client.ack(came.message.mid, came.message.qos)

    # --- on paho's thread ---------------------------------------------------------

    def _on_connect(self, client: Any, _: Any, flags: Any, reason: Any, __: Any) -> None:
        if reason.is_failure:
            kinds: dict[int, type[Exception]] = {
                BAD_LOGIN: Unauthenticated, NOT_ALLOWED: PermissionDenied, BANNED: PermissionDenied,
            }  # fmt: skip
            if (kind := kinds.get(reason.value)) is not None:
                self._end_session(kind(f"the MQTT broker refused the connection: {reason}"))
            else:
                log.warning("the MQTT broker refused the connection: %s", reason)
            return
        with self._changed:
            self._connection += 1
            if flags.session_present:  # what was not taken comes again
                self._waiting.clear()
        client.subscribe(self._wanted)

    def _on_subscribe(self, _: Any, __: Any, ___: Any, reasons: Any, ____: Any) -> None:
        for (topic, _how), reason in zip(self._wanted, reasons, strict=True):
            if reason.is_failure:
                self._end_session(
                    PermissionDenied(f"the MQTT broker refused topic {topic}: {reason}")
                )
                return
        with self._changed:
            self._ready = True
            self._changed.notify_all()
        log.info("subscribed at %s:%d", self.host, self.port)

    def _on_disconnect(self, _: Any, __: Any, ___: Any, reason: Any, ____: Any) -> None:
        if reason.value == TAKEN_OVER:
            self._end_session(FailedPrecondition("another MQTT client took the session over"))
        elif reason.is_failure:
            log.warning("the connection to the MQTT broker broke: %s", reason)

    def _on_message(self, _: Any, __: Any, message: Any) -> None:
        with self._changed:
            drops = not message.qos and len(self._waiting) >= self._window
            if drops and not self._drops:
                log.warning(
                    "%d messages are waiting; further ones of QoS 0 are dropped", len(self._waiting)
                )
            self._drops = drops
            if not drops:
                self._waiting.append(BrokerMessage(message, self._connection))
                self._changed.notify_all()

    def _end_session(self, error: Exception) -> None:
        with self._changed:
            self._failed = self._failed or error
            self._changed.notify_all()


def where(address: BrokerAddress) -> tuple[str, int]:
    """Returns host and port. Raises InvalidArgument, also for a password that would travel in
    plaintext to another machine."""
    url = urlsplit(address.url)
    try:
        port = url.port or PORTS.get(url.scheme, 0)
    except ValueError:
        port = 0
    if url.scheme not in PORTS or not url.hostname or not port or url.path.strip("/"):
        raise invalid("broker", "expected mqtt://HOST[:PORT] or mqtts://HOST[:PORT]")
    if url.username or url.password:
        raise invalid(
            "broker",
            "must not contain a name or password, because other users can see the options of "
            "a command",
        )
    if (address.cert is None) != (address.key is None):
        raise invalid("broker_cert", "must be set together with broker_key")
    if url.scheme == "mqtt" and (address.ca or address.cert):
        raise invalid("broker", "must be mqtts:// when certificates are used")
    if address.password_file is not None and address.username is None:
        raise invalid("password_file", "needs a username")
    if url.scheme == "mqtt" and address.password_file is not None and not _is_here(url.hostname):
        raise invalid("broker", f"the password would travel in plaintext to {url.hostname}")
    return url.hostname, port


def secure_client(client: Any, address: BrokerAddress) -> None:
    if address.url.startswith("mqtts:"):
        try:
            context = ssl.create_default_context(cafile=address.ca and str(address.ca))
            if address.cert is not None:
                context.load_cert_chain(address.cert, address.key)
        except OSError as error:
            raise invalid("broker_ca", f"the files cannot be used: {error}") from None
        client.tls_set_context(context)
    if address.username is not None:
        password = None
        if address.password_file is not None:
            try:
                password = address.password_file.read_text("utf-8").rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", "is not UTF-8")
                problem = f"cannot read {address.password_file}: {why}"
                raise invalid("password_file", problem) from None
        client.username_pw_set(address.username, password)


def _is_here(host: str) -> bool:
    try:
        return is_loopback(host)
    except ValueError:
        return False
