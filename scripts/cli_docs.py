"""Writes the --help of every command into docs/cli.md: python scripts/cli_docs.py"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

from ps2stream.cli import main

DOCS = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
BEGIN = "<!-- --help of every command, written by scripts/cli_docs.py -->\n"


def commands(group: click.Command = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yields the arguments of every command, groups before their members."""
    yield path
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield from commands(command, (*path, name))


def command_of(path: tuple[str, ...]) -> click.Command:
    """Returns the command of these arguments."""
    found: click.Command = main
    for name in path:
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), name) or found
    return found


def help_of(path: tuple[str, ...]) -> str:
    """Returns the output of --help, 96 columns wide."""
    result = CliRunner().invoke(
        main, [*path, "--help"], terminal_width=96, prog_name="ps2stream", env={}
    )
    assert result.exit_code == 0, result.output
    return result.output


def reference() -> str:
    """Returns the generated part of docs/cli.md."""
    parts = [BEGIN]
    for path in commands():
        name = " ".join(("ps2stream", *path))
        parts.append(f"\n## {name}\n\n```text\n{help_of(path).rstrip()}\n```\n")
    return "".join(parts)


if __name__ == "__main__":
    head = DOCS.read_text("utf-8").split(BEGIN)[0]
    DOCS.write_text(head + reference(), "utf-8")
