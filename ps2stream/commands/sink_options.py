"""The options that the commands of sinks share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ps2stream.commands.connecting import FILE, exclusion_error
from ps2stream.commands.output import FiniteRange

if TYPE_CHECKING:
    from ps2stream.connectors.http_poster import HttpTarget
    from ps2stream.connectors.readable import MessageStyle

F = TypeVar("F", bound=Callable[..., Any])


def session_option(command: F) -> F:
    """Adds the option that names the session."""
    return click.option(
        "--session", default="default", show_default=True, help="Session whose matches are sent."
    )(command)


def refusal_options(command: F) -> F:
    """Adds the options for what the receiver does not accept."""
    command = click.option(
        "--dead-letters",
        type=FILE,
        metavar="FILE",
        help="File to which what was refused is appended; without it, the first refusal ends the "
        "connector.",
    )(command)
    return click.option(
        "--give-up",
        type=FiniteRange(min=0),
        default=0.0,
        show_default=True,
        help="Seconds after which what was not accepted counts as refused; 0: never.",
    )(command)


def reach_options(command: F) -> F:
    """Adds the options of receivers of HTTP: their CA, and the addresses at which they may be."""
    command = click.option(
        "--public-only",
        is_flag=True,
        help="Refuse this machine's addresses, too: for a URL that somebody else has chosen.",
    )(command)
    command = click.option(
        "--allow-private",
        is_flag=True,
        help="Permit addresses of private networks, which are refused otherwise.",
    )(command)
    return click.option(
        "--receiver-ca", type=FILE, metavar="FILE", help="CA certificate of the receiver in PEM."
    )(command)


def message_options(most: int, interval: float) -> Callable[[F], F]:
    """Adds the options of messages for people, with the defaults of --batch and --interval."""

    def add_options(command: F) -> F:
        for option in (
            click.option(
                "--link",
                metavar="URL",
                help="Link of each match, such as https://example.org/ads/{object_id}; {query_id}, "
                "{session}, {seq}, {lat} and {lon} are possible, too.",
            ),
            click.option(
                "--show",
                multiple=True,
                metavar="NAME",
                help="Attribute that messages show; may be given repeatedly.",
            ),
            click.option(
                "--cut",
                type=click.IntRange(20, 500),
                default=280,
                show_default=True,
                help="Largest number of characters shown of a text.",
            ),
            click.option(
                "--interval",
                type=FiniteRange(min=0, max=86_400),
                default=interval,
                show_default=True,
                help="Seconds that a match may wait for others, to be sent in one message.",
            ),
            click.option(
                "--batch",
                type=click.IntRange(1, 1000),
                default=most,
                show_default=True,
                help="Largest number of matches in a message.",
            ),
        ):
            command = option(command)
        return refusal_options(session_option(command))

    return add_options


def http_target(
    url: str, field: str, ca: Path | None, allow_private: bool, public_only: bool
) -> HttpTarget:
    """Returns where to post, from the values of reach_options. Raises InvalidArgument."""
    from ps2stream.connectors.addresses import AddressReach
    from ps2stream.connectors.http_poster import HttpTarget

    if allow_private and public_only:
        raise exclusion_error("--allow-private", "--public-only")
    reach = AddressReach.ANY if allow_private else AddressReach.USUAL
    return HttpTarget(url, field, ca, AddressReach.PUBLIC if public_only else reach)


def message_style(session: str, link: str | None, show: tuple[str, ...], cut: int) -> MessageStyle:
    """Returns how messages look, from the values of message_options. Raises InvalidArgument."""
    from ps2stream.connectors.readable import MessageStyle

    return MessageStyle(session, link or "", show, cut)
