"""Hints for options that have another name here than a user expects."""

from __future__ import annotations

import click

_SERVER = ("--server",)
OTHER_NAMES = {
    "--target": _SERVER,
    "--address": ("--server", "--host"),
    "--endpoint": _SERVER,
    "--url": _SERVER,
    "--host": _SERVER,
    "--port": _SERVER,
    "--listen": ("--host",),
    "--bind": ("--host",),
    "--ca": ("--tls-ca",),
    "--cert": ("--tls-cert",),
    "--key": ("--tls-key",),
}
"""Names of options of other programs and of parameters of the clients, and what to use instead: the
first of these options that the command has. Click itself finds other names that look alike."""


def suggest_option(error: click.UsageError) -> click.UsageError:
    """Returns the error, with the option that was probably meant if it is about an option that the
    command has under another name."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error
    known = {name for param in error.ctx.command.params for name in param.opts}
    meant = [name for name in OTHER_NAMES.get(error.option_name, ()) if name in known]
    if not meant:
        return error
    text = f"{error.message} Did you mean {meant[0]!r}?"
    return click.NoSuchOption(error.option_name, text, ctx=error.ctx)
