"""The options that name an MQTT broker, and how to log in there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ps2stream.commands.connecting import FILE

F = TypeVar("F", bound=Callable[..., Any])


def broker_options(command: F) -> F:
    """Adds them."""
    for option in (
        click.option(
            "--broker-key",
            type=FILE,
            metavar="FILE",
            help="Private key of the client certificate in PEM.",
        ),
        click.option("--broker-cert", type=FILE, metavar="FILE", help="Client certificate in PEM."),
        click.option(
            "--broker-ca", type=FILE, metavar="FILE", help="CA certificate of the broker in PEM."
        ),
        click.option(
            "--password-file", type=FILE, metavar="FILE", help="File that contains the password."
        ),
        click.option("--username", help="User name at the broker."),
        click.option(
            "--broker",
            required=True,
            metavar="URL",
            help="URL of the broker: mqtt://HOST[:PORT], or mqtts:// for TLS.",
        ),
    ):
        command = option(command)
    return command
