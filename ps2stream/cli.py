"""The `ps2stream` program."""

from __future__ import annotations

import difflib
import importlib

import click

from ps2stream import __version__
from ps2stream.commands.output import EPILOG, CommandGroup, json_option

# name -> (module, attribute): imported when used, so that --help is quick.
COMMANDS = {
    "serve": ("serve", "serve"),
    "cluster": ("cluster", "cluster"),
    "insert": ("queries", "insert"),
    "delete": ("queries", "delete"),
    "list": ("queries", "list_queries"),
    "explain": ("inquiries", "explain"),
    "price": ("inquiries", "price"),
    "publish": ("publish", "publish"),
    "subscribe": ("subscribe", "subscribe"),
    "connect": ("connect", "connect"),
    "status": ("status", "status"),
    "health": ("health", "health"),
    "rebalance": ("rebalance", "rebalance"),
    "token": ("token", "token"),
    "plan": ("plan", "plan"),
    "apply": ("apply", "apply"),
    "replan": ("replan", "replan"),
    "scale": ("apply", "scale"),
    "migrations": ("migrations", "migrations"),
    "calibrate": ("calibrate", "calibrate"),
    "map": ("map", "live_map"),
    "backup": ("backup", "backup"),
    "restore": ("backup", "restore"),
    "doctor": ("doctor", "doctor"),
    "dashboards": ("dashboards", "dashboards"),
    "config": ("config", "config"),
    "demo": ("demo", "demo"),
    "bench": ("bench", "bench"),
    "experiment": ("experiment", "experiment"),
}


class LazyCommands(CommandGroup):
    """A group of commands that loads the module of a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(f"ps2stream.commands.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolves as click does, but suggests similar names without loading any command."""
        name = args[0]
        if name in COMMANDS or name.startswith("-"):
            return super().resolve_command(ctx, args)
        near = [f"'{found}'" for found in difflib.get_close_matches(name, COMMANDS)]
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise click.UsageError(f"No such command {name!r}.{hint}", ctx)


@click.group(
    cls=LazyCommands,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 96},
)
@click.version_option(__version__, prog_name="ps2stream")
@json_option
def main() -> None:
    """Publish/subscribe over streams of geo-tagged text.

    Start a service with `serve`, register queries with `insert` ("these words, in this
    area"), `publish` posts, and `subscribe` to the matches. `demo` shows all of this in one
    run.
    """


if __name__ == "__main__":
    main()
