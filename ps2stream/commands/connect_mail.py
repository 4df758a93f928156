"""`ps2stream connect mail`, and what confirms its recipients: `mail-invite`, `mail-confirm`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ps2stream.commands.connecting import (
    FILE,
    SINK,
    connect_patiently,
    run_connector,
    running_options,
)
from ps2stream.commands.output import CommandOutput, json_option, pass_output
from ps2stream.commands.sink_options import message_options, message_style
from ps2stream.extras import name_missing_extra

F = TypeVar("F", bound=Callable[..., Any])


def mail_options(command: F) -> F:
    """Adds the options of a mail server and a sender."""
    for option in (
        click.option(
            "--smtp-ca", type=FILE, metavar="FILE", help="CA certificate of the mail server in PEM."
        ),
        click.option(
            "--password-file", type=FILE, metavar="FILE", help="File that contains the password."
        ),
        click.option("--username", help="User name at the mail server."),
        click.option(
            "--from", "sender", required=True, metavar="ADDRESS", help="Address of the sender."
        ),
        click.option(
            "--smtp",
            required=True,
            metavar="URL",
            help="URL of the mail server: smtps://HOST[:PORT], or smtp:// for STARTTLS, without "
            "which only a server on this machine is used.",
        ),
    ):
        command = option(command)
    return command


secret_option = click.option(
    "--secret-file",
    type=FILE,
    required=True,
    metavar="FILE",
    help="File of secrets that sign tokens, one whsec_... per line, the newest first.",
)


@click.command("mail")
@mail_options
@click.option(
    "--recipients",
    type=FILE,
    metavar="FILE",
    help="File of your list: an address per line, with comments after #.",
)
@click.option(
    "--confirmed",
    type=FILE,
    metavar="FILE",
    help="File of the addresses that mail-confirm has added for this session.",
)
@click.option(
    "--unsubscribe",
    default="",
    metavar="URL",
    help="mailto: or https: URL by which a recipient leaves.  [default: a mail to the sender]",
)
@message_options(most=50, interval=60.0)
@running_options
@pass_output
def mail(
    output: CommandOutput,
    /,
    server: str,
    session: str,
    smtp: str,
    sender: str,
    username: str | None,
    password_file: Path | None,
    smtp_ca: Path | None,
    recipients: Path | None,
    confirmed: Path | None,
    unsubscribe: str,
    batch: int,
    interval: float,
    cut: int,
    show: tuple[str, ...],
    link: str | None,
    give_up: float,
    dead_letters: Path | None,
    **how: Any,
) -> None:
    """Mail the matches of a session, as digests.

    Only addresses of --recipients and --confirmed get mail, each a mail of its own. Matches
    are acknowledged to the service once the mail server has taken the digest over for
    everybody. After a crash a digest may be mailed again, with the same Message-ID if it has the
    same matches. The files are read again for each digest.

    \b
      ps2stream connect mail --session alerts --smtp smtps://mail.example.org \\
        --from alerts@example.org --username alerts --password-file ~/.ps2s-mail \\
        --recipients recipients.txt
    """
    with name_missing_extra("ps2stream connect mail", "webhook"):
        from ps2stream.connectors.mail_server import MailSender, MailServer
        from ps2stream.connectors.mail_sink import MAIL_BYTES, MailOptions, MailReceiver
        from ps2stream.connectors.sink_loop import SinkLoop, SinkOptions

        style = message_style(session, link, show, cut)
    options = MailOptions(sender, recipients, confirmed, unsubscribe)
    to_server = MailSender(MailServer(smtp, username, password_file, smtp_ca), sender)
    receiver = MailReceiver(to_server, options, style)
    sink = SinkOptions(session, batch, MAIL_BYTES, interval, give_up, dead_letters, payload=False)
    with (
        run_connector(output, "mail", SINK, how) as run,
        connect_patiently(output, server) as to,
    ):
        SinkLoop(to, sink, receiver, run.counts, run.teller).run(
            run.stop,
            lambda: run.ready(
                {"session": session, "host": to_server.host, "server": server},
                f"mailing the matches of {session} by {to_server.host}",
            ),
        )


@click.command("mail-invite")
@click.option("--session", default="default", show_default=True, help="Session to be mailed.")
@secret_option
@mail_options
@json_option
@click.argument("address")
@pass_output
def mail_invite(
    output: CommandOutput,
    /,
    session: str,
    secret_file: Path,
    smtp: str,
    sender: str,
    username: str | None,
    password_file: Path | None,
    smtp_ca: Path | None,
    address: str,
) -> None:
    """Mail a token to an address, with which its owner agrees to get a session's matches.

    The owner gives the token back to you, in a way of your own, and you to mail-confirm. Without
    that, nothing else is mailed. The token is valid for seven days.

    \b
      ps2stream connect mail-invite --session alerts --secret-file ~/.ps2s-invite \\
        --smtp smtps://mail.example.org --from alerts@example.org me@example.net
    """
    from ps2stream.connectors.mail_invitation import send_invitation
    from ps2stream.connectors.mail_server import MailSender, MailServer
    from ps2stream.connectors.signature import read_secrets

    to_server = MailSender(MailServer(smtp, username, password_file, smtp_ca), sender)
    send_invitation(to_server, sender, read_secrets(secret_file)[0], session, address)
    output.emit(
        {"event": "invited", "session": session, "address": address},
        f"mailed a token to {address}",
    )


@click.command("mail-confirm")
@click.option("--session", default="default", show_default=True, help="Session to be mailed.")
@secret_option
@click.option(
    "--confirmed",
    type=FILE,
    required=True,
    metavar="FILE",
    help="File to which the address is added.",
)
@json_option
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
@pass_output
def mail_confirm(
    output: CommandOutput, /, session: str, secret_file: Path, confirmed: Path, file: str
) -> None:
    """Add the address of a token to the recipients of a session.

    FILE contains the token, which mail-invite has mailed; - reads standard input.

    \b
      ps2stream connect mail-confirm --session alerts --secret-file ~/.ps2s-invite \\
        --confirmed confirmed.txt token
    """
    from ps2stream.connectors.mail_recipients import TOKEN_BYTES, add_confirmed, read_token
    from ps2stream.connectors.signature import read_secrets
    from ps2stream.errors import invalid

    try:
        with click.open_file(file, errors="replace") as tokens:
            token = tokens.read(TOKEN_BYTES + 1)
    except OSError as error:
        raise invalid("file", f"cannot read {file}: {error.strerror}") from None
    found = read_token(read_secrets(secret_file), token, time.time())
    if found.session != session:
        raise invalid("session", "is not the one that the token was mailed for")
    new = add_confirmed(confirmed, found.address)
    output.emit(
        {"event": "confirmed", "session": session, "address": found.address, "new": new},
        f"{found.address} gets the matches of {session}" + ("" if new else ", as before"),
    )
