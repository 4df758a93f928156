"""The mail that invites somebody to get a session's matches."""

from __future__ import annotations

import secrets
import time

from ps2stream.connectors.mail_recipients import (
    VALID_S,
    ConfirmedAddress,
    check_address,
    sign_token,
)
from ps2stream.connectors.mail_server import MailAnswer, MailSender
from ps2stream.connectors.mail_sink import MailDigest, build_mail
from ps2stream.connectors.readable import NAME_CHARACTERS, clean_text
from ps2stream.errors import FailedPrecondition, Unavailable

TEXT = """\
Somebody wants the matches of the saved search "{session}" to be mailed to you.

If you want that, give this token back to whoever you asked, within seven days:

{token}

Otherwise do nothing: you will get no other mail.
"""


def send_invitation(
    server: MailSender, sender: str, key: bytes, session: str, address: str
) -> None:
    """Mails a token. Raises InvalidArgument for an address that is none, FailedPrecondition when
    the mail server refuses it, and Unavailable when it does not take it now."""
    check_address(sender, "from")
    check_address(address, "address")
    until = int(time.time()) + VALID_S
    token = sign_token(key, ConfirmedAddress(address, session), until)
    name = clean_text(session, NAME_CHARACTERS)
    text = TEXT.format(session=name, token=token)
    digest = MailDigest(f"invite-{secrets.token_hex(16)}", f"Confirm: matches of {name}", text)
    answers: list[MailAnswer] = []
    mail = build_mail(sender, "", address, digest)
    problem = server.send({address: mail}, lambda _, answer: answers.append(answer))
    if answers and answers[0].accepted:
        return
    if answers and answers[0].refused:
        code, reason = answers[0]
        raise FailedPrecondition(f"the mail server refused {address}: {code} {reason}")
    raise Unavailable(f"the mail server did not take the mail: {problem or answers[0].reason}")
