"""Options that name files, which several may do."""

from __future__ import annotations

from collections.abc import Callable

import click

from ps2stream.commands.output import F


def file_names(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Refuses an option in the place of a file name, and standard input, which can be read only
    once. An option's callback."""
    if wrong := next((name for name in value if name.startswith("-")), None):
        raise click.BadParameter(f"expected a file, got {wrong!r}", ctx, param)
    return value


def files_option(name: str, what: str) -> Callable[[F], F]:
    """Returns an option for files of something."""
    more = f"File of {what}; may be given repeatedly."
    return click.option(name, metavar="FILE", multiple=True, callback=file_names, help=more)
