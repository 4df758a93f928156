"""A Mosquitto of the tests' own: one port in plaintext, one with TLS, both with a password."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.support.certificates import Authority
from tests.support.kafka_broker import free_port

USER, PASSWORD = "feed", "only-for-tests"
DENIED = "denied"
"""The topics below which nobody may publish."""
PACKET_BYTES = 200_000
_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"


class Mosquitto:
    """Keeps sessions on disk when it is stopped in order."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self.port, self.tls_port = free_port(), free_port()
        self.ca = folder / "ca.pem"
        pair = Authority(folder).issue("127.0.0.1")
        self.password_file = folder / "password"
        self.password_file.write_text(PASSWORD + "\n")
        users = folder / "users"
        subprocess.run(
            [shutil.which("mosquitto_passwd", path=_PATH) or "", "-b", "-c", users, USER, PASSWORD],
            check=True,
        )
        (folder / "acl").write_text(f"user {USER}\ntopic readwrite #\ntopic deny {DENIED}/#\n")
        (folder / "mosquitto.conf").write_text(
            f"""user {getpass.getuser()}
allow_anonymous false
password_file {users}
acl_file {folder}/acl
max_packet_size {PACKET_BYTES}
persistence true
persistence_location {folder}/
max_inflight_messages 100
max_queued_messages 0
listener {self.port} 127.0.0.1
listener {self.tls_port} 127.0.0.1
certfile {pair.cert}
keyfile {pair.key}
"""
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        config = self._folder / "mosquitto.conf"
        with (self._folder / "mosquitto.log").open("ab") as log:
            self._process = subprocess.Popen([self._program, "-c", config], stdout=log, stderr=log)
        deadline = time.monotonic() + 300
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.tls_port)).close()
                return
            said = (self._folder / "mosquitto.log").read_text()
            assert self._process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None

    def publish(self, topic: str, payloads: list[bytes]) -> None:
        """With QoS 1; returns once the broker has them all."""
        client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        client.username_pw_set(USER, PASSWORD)
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        sent = [client.publish(topic, payload, qos=1) for payload in payloads]
        for info in sent:
            info.wait_for_publish(60)
        client.disconnect()
        client.loop_stop()


@contextlib.contextmanager
def mosquitto(folder: Path) -> Iterator[Mosquitto]:
    program = shutil.which("mosquitto", path=_PATH)
    if program is None:
        pytest.skip("there is no Mosquitto here (Debian: apt-get install mosquitto)")
    found = Mosquitto(program, folder)
    try:
        yield found
    finally:
        found.stop()
