"""Service to mail: digests of a session's matches, to recipients who have agreed."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.policy import EmailPolicy
from email.utils import formatdate
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from ps2stream.connectors.deliveries import DeliveryItem
from ps2stream.connectors.mail_recipients import check_address, read_recipients
from ps2stream.connectors.mail_server import MailAnswer, MailSender
from ps2stream.connectors.readable import MessageStyle, ReadableMatch, read_gap
from ps2stream.connectors.sink_loop import SinkAttempt, SinkPart, SinkVerdict
from ps2stream.errors import InvalidArgument, Unauthenticated, invalid

log = logging.getLogger(__name__)

MAIL_BYTES = 256 << 10
"""Most bytes of the matches of a mail."""
UNSUBSCRIBE_CHARACTERS = 500


class MailPolicy(EmailPolicy):
    """Mail of ASCII alone, which every server takes. A header of URLs stays on one line: it would
    be encoded like words otherwise, which no reader of it undoes."""

    def fold_binary(self, name: str, value: str) -> bytes:
        """Returns the lines of a header."""
        if name == "List-Unsubscribe":
            return f"{name}: {value}{self.linesep}".encode("ascii")
        return super().fold_binary(name, value)


MAIL_POLICY = MailPolicy(linesep="\r\n", cte_type="7bit", raise_on_defect=False)


@dataclass(frozen=True, slots=True)
class MailOptions:
    """Options of mail. sender: an address. recipients: the operator's list; confirmed: a list that
    mail-confirm writes. unsubscribe: a mailto: or https: URL; without one, a mail to the sender.
    Raises InvalidArgument."""

    sender: str
    recipients: Path | None = None
    confirmed: Path | None = None
    unsubscribe: str = ""

    def __post_init__(self) -> None:
        check_address(self.sender, "from")
        if self.recipients is None and self.confirmed is None:
            raise invalid("recipients", "or confirmed must be set: nobody else gets mail")
        url = self.unsubscribe
        if url and not (
            url.startswith(("mailto:", "https://"))
            and len(url) <= UNSUBSCRIBE_CHARACTERS
            and all("!" <= c <= "~" and c not in '<>,"' for c in url)
        ):
            raise invalid("unsubscribe", "expected one mailto: or https:// URL")

    def read(self) -> list[str]:
        """Returns the recipients as the files name them now. Raises InvalidArgument."""
        return read_recipients([("recipients", self.recipients), ("confirmed", self.confirmed)])


@dataclass(slots=True)
class MailDigest:
    """What is mailed of a part, and the last answer of the mail server by recipient."""

    name: str
    subject: str
    text: str
    answers: dict[str, MailAnswer] = field(default_factory=dict)

    def is_due(self, address: str) -> bool:
        """Returns whether the recipient has neither got it nor refused it."""
        answer = self.answers.get(address)
        return answer is None or not (answer.accepted or answer.refused)


class MailReceiver:
    """A mail server. A digest is accepted once the server has taken it over for every recipient,
    but those that it refuses for good, which are logged; it is refused if they are all. The lists
    are read anew for each attempt."""

    def __init__(self, sender: MailSender, options: MailOptions, style: MessageStyle) -> None:
        if not options.read():
            where = "recipients" if options.confirmed is None else "confirmed"
            log.warning("%s has no address yet; matches wait until there is one", where)
        self._sender = sender
        self._options = options
        self._style = style

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def measure(self, item: DeliveryItem) -> int:
        """Returns the bytes of the item's lines."""
        return 0 if item.query_id is None else len(_write_match(self._style.read(item)).encode())

    def prepare(self, part: SinkPart) -> MailDigest:
        """Returns the digest of a part."""
        if part.is_gap:
            gap = read_gap(part.items[0], self._style.session_name)
            return MailDigest(part.name, gap.title, f"{gap.text}\n")
        matches = [self._style.read(item) for item in part.items]
        text = "\n".join(map(_write_match, matches))
        return MailDigest(part.name, self._style.title(matches), text)

    async def attempt(self, name: str, body: MailDigest) -> SinkAttempt:
        """Sends the digest to every recipient who has not got it yet."""
        options = self._options
        try:
            wanted = options.read()
        except InvalidArgument as error:  # somebody is editing the list
            return SinkAttempt(SinkVerdict.AGAIN, str(error))
        if not wanted:
            return SinkAttempt(SinkVerdict.AGAIN, "no recipient is on the lists")
        due = {
            a: build_mail(options.sender, options.unsubscribe, a, body)
            for a in wanted
            if body.is_due(a)
        }
        before = set(due)
        try:
            problem = await asyncio.to_thread(self._sender.send, due, body.answers.__setitem__)
        except Unauthenticated as error:
            return SinkAttempt(SinkVerdict.ENDED, str(error))
        return self._judge(body, wanted, before, problem)

    def describe(self, body: MailDigest) -> Any:
        """Returns the digest and the recipients without it."""
        missing = {
            address: f"{answer.code} {answer.reason}"
            for address, answer in body.answers.items()
            if not answer.accepted
        }
        return {"subject": body.subject, "text": body.text, "refused": missing}

    def _judge(
        self, body: MailDigest, wanted: list[str], tried: set[str], problem: str
    ) -> SinkAttempt:
        answers = {a: body.answers[a] for a in wanted if a in body.answers}
        for address in tried & answers.keys():
            if (answer := answers[address]).refused:
                code, reason = answer
                log.warning("mail to %s was refused for good: %d %s", address, code, reason)
        later = [a for a in wanted if body.is_due(a)]
        if later:
            last = answers.get(later[0])
            said = problem or (f"answered {last.code} {last.reason}" if last else "")
            return SinkAttempt(SinkVerdict.AGAIN, f"{len(later)} recipients wait: {said}")
        if not any(answer.accepted for answer in body.answers.values()):
            first = answers[wanted[0]]
            return SinkAttempt(SinkVerdict.REFUSED, f"answered {first.code} {first.reason}")
        return SinkAttempt(SinkVerdict.ACCEPTED)


def build_mail(sender: str, unsubscribe: str, address: str, digest: MailDigest) -> EmailMessage:
    """Returns the mail to one recipient, who sees no other. What is sent again has the same
    Message-ID."""
    domain = sender.rpartition("@")[2]
    leave = unsubscribe or f"mailto:{quote(sender, safe='@')}?subject=unsubscribe"
    made = EmailMessage(policy=MAIL_POLICY)
    made["From"] = sender
    made["To"] = address
    made["Subject"] = digest.subject
    made["Date"] = formatdate(time.time(), usegmt=True)
    made["Message-ID"] = f"<{digest.name}@{domain}>"
    made["List-Unsubscribe"] = f"<{leave}>"
    made["Auto-Submitted"] = "auto-generated"
    made.set_content(f"{digest.text}\n-- \nTo get no more of these mails: {leave}\n")
    return made


def _write_match(match: ReadableMatch) -> str:
    rows = [f"{match.query_id}: {match.text}", *match.details]
    if match.link:
        rows.append(match.link)
    return "\n  ".join(rows) + "\n"
