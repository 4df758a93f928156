"""The `ps2stream` program."""

from __future__ import annotations

import difflib
import importlib

import click
from click.shell_completion import CompletionItem

from ps2stream import __version__
from ps2stream.commands.output import EPILOG, CommandGroup, json_option
from ps2stream.extras import COMMAND_EXTRAS, name_missing_extra

# name -> (module, attribute): imported when used, so that --help is quick.
COMMANDS = {
    "serve": ("serve", "serve"),
    "cluster": ("cluster", "cluster"),
    "insert": ("queries", "insert"),
    "delete": ("queries", "delete"),
    "list": ("queries", "list_queries"),
    "query": ("queries", "query"),
    "explain": ("inquiries", "explain"),
    "price": ("inquiries", "price"),
    "publish": ("publish", "publish"),
    "subscribe": ("subscribe", "subscribe"),
    "match": ("match", "match"),
    "connect": ("connect", "connect"),
    "pipeline": ("pipeline", "pipeline"),
    "status": ("status", "status"),
    "health": ("health", "health"),
    "rebalance": ("rebalance", "rebalance"),
    "token": ("token", "token"),
    "plan": ("plan", "plan"),
    "apply": ("apply", "apply"),
    "replan": ("replan", "replan"),
    "scale": ("scale", "scale"),
    "migrations": ("migrations", "migrations"),
    "calibrate": ("calibrate", "calibrate"),
    "map": ("map", "live_map"),
    "mcp": ("mcp", "mcp"),
    "archive": ("archive", "archive"),
    "backup": ("backup", "backup"),
    "restore": ("backup", "restore"),
    "doctor": ("doctor", "doctor"),
    "dashboards": ("dashboards", "dashboards"),
    "config": ("config", "config"),
    "demo": ("demo", "demo"),
    "bench": ("bench", "bench"),
    "experiment": ("experiment", "experiment"),
}
SUMMARIES = {
    "serve": "Run the service on this machine until interrupted.",
    "cluster": "Run the service on several hosts, in a Ray cluster.",
    "insert": "Insert the query ID, or every query of a file.",
    "delete": "Delete queries.",
    "list": "List live queries in the order in which they were inserted, or only those named.",
    "query": "Show single queries.",
    "explain": "Explain why posts would match a query, or would not.",
    "price": "Estimate the matches and the cost of a query, before it is inserted.",
    "publish": (
        "Publish the posts of FILE: JSON Lines, CSV, GeoJSON or Parquet; - reads standard input."
    ),
    "subscribe": "Print the matches of SESSION as they arrive, until interrupted.",
    "match": "Match files of objects against a file of queries, in this process.",
    "connect": "Read posts from other systems, and write matches to them.",
    "pipeline": "Publish what Spark reads from files, Kafka and others as posts.",
    "status": "Show whether the running service is healthy, and if not, why.",
    "health": "Check whether a dispatcher serves, as a probe does; this needs no token.",
    "rebalance": "Migrate parts of cells from the most loaded workers to the least loaded.",
    "token": "Create, list and revoke the tokens that clients present to a service.",
    "plan": "Plan which worker serves which part of space and which terms.",
    "apply": "Change the running service to the plan in the file PLAN.",
    "replan": "Make a new plan, and change the running service to it if it is worth it.",
    "scale": "Change the number of workers, mergers or dispatchers of the running service.",
    "migrations": "List the plan changes that ended, oldest first, and the one in progress.",
    "calibrate": "Measure the costs that plans are made with, on this machine.",
    "map": "Serve a live map of the running service, until interrupted.",
    "mcp": "Serve the Model Context Protocol (MCP) to an assistant, as a client of the service.",
    "archive": (
        "Look at the archive of a service, which `serve` writes if archive is set, and compact it."
    ),
    "backup": "Copy a data directory to DEST, a new or empty folder.",
    "restore": "Create a data directory from the backup SRC.",
    "doctor": "Check this machine and the data directory of a service, and say what to do.",
    "dashboards": "Write configuration files for Prometheus, Grafana and Ray's Metrics tab.",
    "config": "Work with the settings file of `serve`.",
    "demo": "Show a live stream against thousands of queries, and verify the matches.",
    "bench": "Run benchmarks on this machine.",
    "experiment": "Repeat an experiment of the papers, and report which of their orderings hold.",
}
"""The first sentence of each command's help, so that --help and the completion of a shell import no
command."""


class LazyCommands(CommandGroup):
    """A group of commands that loads the module of a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name]
        with name_missing_extra(f"ps2stream {cmd_name}", COMMAND_EXTRAS.get(cmd_name)):
            command = getattr(importlib.import_module(f"ps2stream.commands.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        limit = formatter.width - 6 - max(map(len, SUMMARIES))
        stand_ins = (click.Command(name, help=text) for name, text in SUMMARIES.items())
        with formatter.section("Commands"):
            formatter.write_dl([(c.name or "", c.get_short_help_str(limit)) for c in stand_ins])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [
            CompletionItem(name, help=text)
            for name, text in SUMMARIES.items()
            if name.startswith(incomplete)
        ]
        return found + super(click.Group, self).shell_complete(ctx, incomplete)  # the options

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
