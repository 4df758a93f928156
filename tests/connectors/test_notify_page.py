"""The page about telling people of matches: its commands do what it shows."""

from __future__ import annotations

import base64
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.mail_server import PASSWORD, MailBox, mail_server
from tests.support.message_receivers import NtfyServer, SlackChannel
from tests.support.mqtt_server import Mosquitto, mosquitto
from tests.support.newcomers_desk import Desk, difference
from tests.support.replay import steps
from tests.support.webhook_receiver import serving

pytestmark = pytest.mark.slow

PAGE = "docs/howto/notify.md"
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)


class OpenNtfy(NtfyServer):
    """A server without access control, as the page has it."""

    def fit(self, headers: dict[str, str], body: dict[str, object]) -> bool:
        return super().fit({**headers, "authorization": f"Bearer {self.token}"}, body)


class ConnectedDesk(Desk):
    """A desk beside which the receivers of the page are, at other addresses than it says."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.places: dict[str, str] = {}
        self.more: dict[str, list[str]] = {}

    def _run(self, command: str) -> str:
        for shown, real in self.places.items():
            command = command.replace(shown, real)
        words = command.split()
        if words[:2] != ["ps2stream", "connect"]:
            return super()._run(command)
        return self._show(self._connect(command))

    def _connect(self, command: str) -> str:
        words = shlex.split(command)[1:]
        words += self.more.get(words[1], [])
        if words[1] in ("mail-invite", "mail-confirm"):
            done = subprocess.run(
                [sys.executable, "-m", "ps2stream", *words],
                capture_output=True, text=True, env=self._environment, check=False,
            )  # fmt: skip
            return done.stdout + done.stderr
        return self._begin([*words, "--server", f"localhost:{self.port}"])

    def _show(self, told: str) -> str:
        for shown, real in self.places.items():
            told = told.replace(real.rpartition("//")[2].split(":")[0], shown.rpartition("//")[2])
        return told


@pytest.fixture
def desk(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ConnectedDesk]:
    monkeypatch.chdir(tmp_path)
    found = ConnectedDesk(root)
    yield found
    found.close()


def prepare_mail(desk: ConnectedDesk, box: MailBox) -> None:
    """The files that the page takes for granted."""
    Path("mail.password").write_text(PASSWORD + "\n")
    Path("invite.secret").write_text(f"whsec_{base64.b64encode(bytes(range(32))).decode()}\n")
    desk.places["smtps://mail.example.org"] = f"smtp://localhost:{box.port}"
    for command in ("mail", "mail-invite"):
        desk.more[command] = ["--smtp-ca", str(box.ca)]


@pytest.mark.takes_turns
def test_the_page_does_what_it_shows(root: Path, desk: ConnectedDesk, tmp_path: Path) -> None:
    page = (root / PAGE).read_text("utf-8").replace("\\\n", "")
    with ExitStack() as stack:
        ntfy = stack.enter_context(serving(OpenNtfy()))
        slack = stack.enter_context(serving(SlackChannel()))
        box = stack.enter_context(mail_server(tmp_path))
        (tmp_path / "broker").mkdir()
        broker: Mosquitto = stack.enter_context(mosquitto(tmp_path / "broker"))
        prepare_mail(desk, box)
        desk.places["https://ntfy.example.org"] = ntfy.url
        desk.places["https://hooks.slack.example"] = slack.url
        desk.places["mqtt://localhost"] = f"mqtt://localhost:{broker.port}"
        desk.more["mqtt-sink"] = [
            "--username",
            "feed",
            "--password-file",
            str(broker.password_file),
        ]
        for block in _BLOCK.findall(page):
            for command, told in steps(block):
                if "mail-confirm" in command:
                    [token] = re.findall(r"^\S+\.\S+$", box.until(1)[0].text, re.MULTILINE)
                    Path("token").write_text(token)
                got = desk.run(" ".join(command.split()))
                assert not told or difference(got, told) == "", command
        shown = json.loads(re.findall(r"^```json\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0])
        message = ntfy.until(1)[0].body
        assert shown.pop("sequence_id") == "msg_..."
        assert message.pop("sequence_id").startswith("msg_")
        assert message == shown
        assert Path("confirmed.txt").read_text() == "anna@example.net\n"
        assert "<feed" in Path("alerts.xml").read_text()
        desk.stop()
