"""An SMTP server to which mail is handed over, with TLS and a login where it needs them."""

from __future__ import annotations

import smtplib
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from ps2stream.connectors.readable import clean_text
from ps2stream.errors import Unauthenticated, invalid
from ps2stream.security import is_loopback

PORTS = {"smtp": 587, "smtps": 465}
REASON_CHARACTERS = 200
"""Most characters that are shown of what the server says."""
ANSWER_S = 15.0
"""Longest time in seconds for which the server may be silent."""
ATTEMPT_S = 60.0
"""Seconds after which no further message is begun on a connection."""


@dataclass(frozen=True, slots=True)
class MailServer:
    """Address of an SMTP server. url: smtps://host[:port], or smtp:// with STARTTLS, which only a
    server on this machine may lack. Files hold a password and a CA in PEM."""

    url: str
    username: str | None = None
    password_file: Path | None = None
    ca: Path | None = None


class MailAnswer(NamedTuple):
    """What the server said of a message to one recipient. code: of SMTP, 0 if it did not answer."""

    code: int
    reason: str

    @property
    def accepted(self) -> bool:
        """True if the server has taken the message over."""
        return 200 <= self.code < 300

    @property
    def refused(self) -> bool:
        """True if another attempt would not help."""
        return 500 <= self.code < 600


ACCEPTED = MailAnswer(250, "accepted")


class MailSender:
    """Hands messages over, each to one recipient, on a connection for each `send`. Raises
    InvalidArgument."""

    def __init__(self, server: MailServer, sender: str) -> None:
        self.host, self._port = find_server(server)
        self._server = server
        self._sender = sender
        self._here = _is_here(self.host)
        self._password = _read_password(server.password_file)
        self._tls = _build_tls(server.ca)

    def send(
        self, messages: Mapping[str, EmailMessage], took: Callable[[str, MailAnswer], None]
    ) -> str:
        """Sends messages by recipient and calls `took` with each answer, in order. Returns what
        ended that early, empty if nothing did. Raises Unauthenticated."""
        began = time.monotonic()
        try:
            with self._connect() as smtp:
                for address, message in messages.items():
                    if time.monotonic() - began > ATTEMPT_S:
                        return f"the mail server took more than {ATTEMPT_S:g} s"
                    took(address, self._send_one(smtp, address, message))
        except smtplib.SMTPAuthenticationError as error:
            if 500 <= error.smtp_code < 600:
                reason = _show_reason(error.smtp_error)
                raise Unauthenticated(f"the mail server refused the login: {reason}") from None
            return f"the login was answered {error.smtp_code}"
        except smtplib.SMTPResponseException as error:
            return f"answered {error.smtp_code} {_show_reason(error.smtp_error)}"
        except (smtplib.SMTPException, OSError) as error:
            return f"{type(error).__name__}: {_show_reason(str(error))}".rstrip(": ")
        return ""

    def _connect(self) -> smtplib.SMTP:
        if self._server.url.startswith("smtps:"):
            smtp: smtplib.SMTP = smtplib.SMTP_SSL(
                self.host, self._port, timeout=ANSWER_S, context=self._tls
            )
        else:
            smtp = smtplib.SMTP(self.host, self._port, timeout=ANSWER_S)
        try:
            if not isinstance(smtp, smtplib.SMTP_SSL) and not (self._here and not self._server.ca):
                smtp.starttls(context=self._tls)
            if self._server.username is not None:
                smtp.login(self._server.username, self._password)
        except BaseException:
            smtp.close()
            raise
        return smtp

    def _send_one(self, smtp: smtplib.SMTP, address: str, message: EmailMessage) -> MailAnswer:
        """Raises SMTPException and OSError when the connection is of no use any more."""
        try:
            smtp.sendmail(self._sender, [address], message.as_bytes())
        except smtplib.SMTPRecipientsRefused as error:
            code, reason = next(iter(error.recipients.values()))
            return MailAnswer(code, _show_reason(reason))
        except (smtplib.SMTPSenderRefused, smtplib.SMTPDataError) as error:
            return MailAnswer(error.smtp_code, _show_reason(error.smtp_error))
        return ACCEPTED


def find_server(server: MailServer) -> tuple[str, int]:
    """Returns host and port. Raises InvalidArgument."""
    try:
        url = urlsplit(server.url)
        host, port = url.hostname, url.port or PORTS.get(url.scheme, 0)
    except ValueError:
        raise invalid("smtp", "expected smtp://HOST[:PORT] or smtps://HOST[:PORT]") from None
    if url.scheme not in PORTS or not host or url.path.strip("/") or url.query:
        raise invalid("smtp", "expected smtp://HOST[:PORT] or smtps://HOST[:PORT]")
    if url.username or url.password:
        raise invalid(
            "smtp",
            "must not contain a name or password, because other users can see the options of a "
            "command",
        )
    if (server.username is None) != (server.password_file is None):
        raise invalid("username", "must be set together with password_file")
    return host, port


def _show_reason(reason: bytes | str) -> str:
    text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
    return clean_text(text, REASON_CHARACTERS)


def _read_password(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"cannot read {path}: {getattr(error, 'strerror', 'is not UTF-8')}"
        raise invalid("password_file", problem) from None


def _build_tls(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:
        raise invalid("smtp_ca", f"{ca}: {error.strerror or error}") from None


def _is_here(host: str) -> bool:
    try:
        return is_loopback(host)
    except ValueError:
        return False
