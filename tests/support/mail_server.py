"""An SMTP server with STARTTLS and a login, which refuses what it is told to refuse."""

from __future__ import annotations

import email
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any, NamedTuple

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from tests.support.certificates import Authority
from tests.support.kafka_broker import free_port

USER, PASSWORD = "alerts", "only-for-tests"


class ReceivedMail(NamedTuple):
    """A mail as it came, and for whom."""

    sender: str
    recipients: list[str]
    data: bytes

    @property
    def message(self) -> EmailMessage:
        return email.message_from_bytes(self.data, policy=default)

    @property
    def text(self) -> str:
        return str(self.message.get_content()).replace("\r\n", "\n")


class MailBox:
    """What was accepted. `script` has the answers to the next recipients, None for yes."""

    def __init__(self) -> None:
        self.mails: list[ReceivedMail] = []
        self.script: list[str | None] = []
        self.refused: dict[str, str] = {}
        self.port = 0
        self.ca = Path()
        self._came = threading.Condition()

    async def handle_RCPT(
        self, server: Any, session: Any, envelope: Any, address: str, options: Any
    ) -> str:
        answer = self.refused.get(address) or (self.script.pop(0) if self.script else None)
        if answer is not None:
            return answer
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        with self._came:
            self.mails.append(
                ReceivedMail(envelope.mail_from, envelope.rcpt_tos, envelope.original_content)
            )
            self._came.notify_all()
        return "250 OK"

    def until(self, count: int) -> list[ReceivedMail]:
        """All mails, once there are so many."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.mails) >= count, 60), self.mails
            return list(self.mails)

    @property
    def password_file(self) -> Path:
        file = self.ca.with_name("mail-password")
        file.write_text(PASSWORD + "\n")
        return file


def _check_login(
    server: Any, session: Any, envelope: Any, mechanism: str, data: LoginPassword
) -> AuthResult:
    good = data.login == USER.encode() and data.password == PASSWORD.encode()
    return AuthResult(success=good, handled=False)


@contextmanager
def mail_server(folder: Path) -> Iterator[MailBox]:
    """At a port of its own on 127.0.0.1; the name of its certificate is localhost, too."""
    authority = Authority(folder)
    pair = authority.issue("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    box = MailBox()
    box.ca = authority.ca
    controller = Controller(
        box,
        hostname="127.0.0.1",
        port=free_port(),
        tls_context=context,
        require_starttls=True,
        auth_required=True,
        authenticator=_check_login,
    )
    controller.start()
    box.port = controller.port
    try:
        yield box
    finally:
        controller.stop()
