"""`ps2stream serve`."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, get_origin

import click
from pydantic.fields import FieldInfo
from rich.console import Console

from ps2stream import __version__, config, log
from ps2stream.cluster.kernel_cache import choose_folder
from ps2stream.cluster.private_folder import end_own_folders
from ps2stream.cluster.start_stages import StartStage
from ps2stream.commands.output import (
    CommandOutput,
    json_option,
    on_interrupt,
    pass_output,
    wait_for_interrupt,
)
from ps2stream.errors import Unavailable

END_S = 9.0
"""Seconds that the service may take to stop once it is asked to."""


def settings_options(*without: str) -> Callable[[Any], Any]:
    """Returns a decorator that adds an option for each setting, so that flags and file never
    differ. Settings that are tables exist in the file only."""

    def add(command: Any) -> Any:
        for name, field in reversed(config.Settings.model_fields.items()):
            if name in without or get_origin(field.annotation) is Mapping:
                continue
            command = click.option(
                "--" + name.replace("_", "-"),
                metavar=_option_metavar(field),
                help=_option_help(field),
            )(command)
        return command

    return add


def _option_metavar(field: FieldInfo) -> str:
    if field.annotation in (int, float):
        return "NUMBER"
    return "PATH" if field.annotation in (Path, Path | None) else "TEXT"


def _option_help(field: FieldInfo) -> str:
    text = (field.description or "")[:1].upper() + (field.description or "")[1:]
    default = field.default if field.default_factory is None else None
    return f"{text}.  [default: {default}]" if default is not None else f"{text}."


class StartProgress:
    """Shows the stages of a start and their seconds: as lines on a terminal or in a text log, as
    records in a JSON log."""

    def __init__(self, console: Console, as_json: bool) -> None:
        self._console = console
        self._as_json = as_json
        self._stage = ""
        self._begun = time.monotonic()

    def begin(self, stage: str) -> None:
        """Ends the stage before and begins this one; an empty name begins none."""
        now = time.monotonic()
        seconds, self._begun = now - self._begun, now
        ended, self._stage = self._stage, stage
        if ended and self._as_json:
            extra = {"stage": ended, "seconds": round(seconds, 2)}
            logging.getLogger("ps2stream.cluster").info("start: a stage ended", extra=extra)
        elif ended:
            self._console.print(f"  {seconds:.1f} s", highlight=False)
        if stage and not self._as_json and self._console.quiet:
            logging.getLogger("ps2stream.cluster").info("start: %s", stage)
        elif stage and not self._as_json:
            self._console.print(f"{stage} ...", highlight=False)


@click.command()
@settings_options()
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE",
              envvar="PS2STREAM_CONFIG", show_envvar=True,
              help="TOML file of settings.")  # fmt: skip
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Start although a log, or the end of the ledger, was lost; sessions then receive a gap. "
    "Use it once, after the service refused to start and named the loss.",
)
@click.option("--verbose", is_flag=True, help="Log at level debug.")
@json_option
@pass_output
def serve(
    output: CommandOutput, /, file: Path | None, accept_loss: bool, verbose: bool, **flags: Any
) -> None:
    """Run the service on this machine until interrupted.

    Settings come from these sources, each of which overrides those before it: defaults, a TOML
    file (--config), the environment (PS2STREAM_PORT=7100), the options below. Queries are kept
    in the data directory and match again after a restart.
    """
    settings = config.load(flags, config=file)
    as_json = output.json or settings.log_format == "json"
    log.configure(logging.DEBUG if verbose else logging.INFO, as_json=as_json)
    progress = StartProgress(output.progress_console(), as_json)
    done = threading.Event()
    stage = StartStage.LOAD
    overdue = threading.Timer(END_S, _end_at_once)
    overdue.daemon = True

    def end() -> None:
        done.set()
        if not stage.holds_data:
            _end_start(output)
        if overdue.ident is None:
            overdue.start()

    def begin_stage(begun: StartStage) -> None:
        nonlocal stage
        if done.is_set():
            raise Unavailable("the start was interrupted")
        stage = begun
        progress.begin(stage)

    failure = ""
    try:
        # Also while modules load: Python drops a KeyboardInterrupt that a finalizer receives.
        with on_interrupt(end):
            progress.begin(stage)
            choose_folder(os.environ)
            from ps2stream.cluster.service import start

            where, single_copy = _describe_storage(settings)
            with start(
                settings, stopping=done, accept_loss=accept_loss, begin_stage=begin_stage
            ) as service:
                progress.begin("")
                output.emit(
                    {
                        "event": "ready",
                        "version": __version__,
                        "targets": service.targets,
                        **where,
                        "runtime": settings.runtime,
                        "single_copy": single_copy,
                    },
                    f"ps2stream {__version__} listens on {', '.join(service.targets)}; queries "
                    f"are kept in {', logs in '.join(where.values())}; stop it with Ctrl-C",
                )
                wait_for_interrupt(done)
                end()  # `done` may have been set by the service itself
                failure = service.failure
    except Unavailable:
        if not done.is_set():  # otherwise the start was interrupted
            raise
    finally:
        overdue.cancel()
    if failure:
        raise Unavailable(failure)
    output.emit({"event": "stopped"}, "stopped")


def _describe_storage(settings: config.Settings) -> tuple[dict[str, str], str]:
    """Returns where the ledger and the logs are, and, if what is acknowledged as durable is on one
    disk, why; of a database this is logged."""
    from ps2stream.cluster.running_service import place_of

    where = {"data_dir": str(settings.data_dir)}
    if settings.database_url is not None:
        ledger = settings.model_copy(update={"log_url": None})
        where = {"database": str(place_of(ledger))}
    if settings.log_url is not None:
        where["logs"] = settings.log_url
    single_copy = place_of(settings).find_single_copy()
    if single_copy and settings.database_url is not None:
        logging.getLogger("ps2stream.cluster").warning(
            "what is acknowledged as durable is on one disk: %s", single_copy
        )
    return where, single_copy


def _end_start(output: CommandOutput) -> None:
    """Ends the process in the midst of a start that has opened nothing yet. Imports, compilers and
    Ray would take seconds to come back, each in its own way."""
    end_own_folders()
    with suppress(RuntimeError):  # the signal came while a line was printed
        output.emit({"event": "stopped"}, "stopped")
    os._exit(0)


def _end_at_once() -> None:
    """Ends the process at once. What is acknowledged is kept, as after kill -9; the next start ends
    what is left of Ray."""
    logging.getLogger("ps2stream.cluster").error("not stopped within %g s; ended at once", END_S)
    os._exit(1)
