"""`ps2stream serve`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_origin

import click
from pydantic.fields import FieldInfo

from ps2stream import __version__, config, log
from ps2stream.commands.output import Output, json_option, on_interrupt, pass_output
from ps2stream.errors import Unavailable


def settings_options(*without: str) -> Callable[[Any], Any]:
    """One option a setting, so that flags and file never differ; tables are the file's."""

    def add(command: Any) -> Any:
        for name, field in reversed(config.Settings.model_fields.items()):
            if name in without or get_origin(field.annotation) is Mapping:
                continue  # a table of the file
            command = click.option(
                "--" + name.replace("_", "-"), metavar=_metavar(field), help=_help(field)
            )(command)
        return command

    return add


def _metavar(field: FieldInfo) -> str:
    if field.annotation in (int, float):
        return "NUMBER"
    return "PATH" if field.annotation in (Path, Path | None) else "TEXT"


def _help(field: FieldInfo) -> str:
    text = (field.description or "")[:1].upper() + (field.description or "")[1:]
    default = field.default if field.default_factory is None else None
    return f"{text}.  [default: {default}]" if default is not None else f"{text}."


@click.command()
@settings_options()
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE",
              envvar="PS2STREAM_CONFIG", show_envvar=True, help="Settings in TOML.")  # fmt: skip
@click.option("--verbose", is_flag=True, help="Log at level debug.")
@json_option
@pass_output
def serve(output: Output, /, file: Path | None, verbose: bool, **flags: Any) -> None:
    """Run the service on this machine until interrupted.

    Settings come from, in rising order: defaults, a TOML file (--config), the environment
    (PS2STREAM_PORT=7100), the options below. Queries are kept in the data directory and
    match again after a restart.
    """
    from ps2stream.cluster.running import place_of
    from ps2stream.cluster.service import start

    settings = config.load(flags, config=file)
    as_json = output.json or settings.log_format == "json"
    log.configure(logging.DEBUG if verbose else logging.INFO, as_json=as_json)
    kept = str(settings.data_dir if settings.database_url is None else place_of(settings))
    where = {"data_dir" if settings.database_url is None else "database": kept}
    done = threading.Event()
    try:
        with on_interrupt(done.set), start(settings, stopping=done) as service:
            output.emit(
                {
                    "event": "ready",
                    "version": __version__,
                    "targets": service.targets,
                    **where,
                    "runtime": settings.runtime,
                },
                f"ps2stream {__version__} listens on {', '.join(service.targets)}; "
                f"queries are kept in {kept}; stop it with Ctrl-C",
            )
            done.wait()
    except Unavailable:
        if not done.is_set():  # else it was not to start any more
            raise
    output.emit({"event": "stopped"}, "stopped")
