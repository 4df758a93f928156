"""Options, output streams, errors and exit codes that all commands share."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from ps2stream import errors
from ps2stream.commands.option_names import suggest_option
from ps2stream.commands.presence import wait_for_presence
from ps2stream.extras import COMMAND_EXTRAS, explain_missing_package

if TYPE_CHECKING:
    from rich.console import Console

    from ps2stream.client.client import Client

F = TypeVar("F", bound=Callable[..., Any])
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

WAKE_S = 0.5
"""Seconds within which a program hears a signal, whichever thread has taken it."""
FAILED, NO_TOKEN = 1, 10
CODES: tuple[tuple[type[errors.Ps2StreamError], int, str], ...] = (
    (errors.InvalidArgument, 2, "invalid_argument"),
    (errors.NotFound, 3, "not_found"),
    (errors.AlreadyExists, 4, "already_exists"),
    (errors.Unavailable, 5, "unavailable"),
    (errors.ResourceExhausted, 6, "resource_exhausted"),
    (errors.FailedPrecondition, 7, "failed_precondition"),
    (errors.DataDirectoryError, 8, "data_directory"),
    (errors.PlanError, 9, "plan"),
    (errors.Unauthenticated, NO_TOKEN, "unauthenticated"),
    (errors.PermissionDenied, 11, "permission_denied"),
)
INTERRUPTED = 130
"""The exit code after an interrupt, as that of a shell."""
EPILOG = (
    "\b\nExit codes: 0 success; 1 failure; 2 bad arguments or input; 3 no such query; 4 id taken;\n"
    "5 service unreachable; 6 service full; 7 not possible now; 8 bad data directory;\n"
    "9 bad plan; 10 no valid token; 11 token lacks the scope; 130 interrupted."
)

_TOKEN = (
    "Access token. Other users of this machine can see options, so prefer the environment "
    "variable or a file."
)
_CA = "CA certificate of the service in PEM, or `system` for the CAs of this machine; turns on TLS."
ACCESS = (
    ("--token-file", "PS2STREAM_TOKEN_FILE", "FILE", "File that contains the access token."),
    ("--token", "PS2STREAM_TOKEN", "TEXT", _TOKEN),
    ("--tls-ca", "PS2STREAM_TLS_CA", "FILE", _CA),
    ("--tls-cert", None, "FILE", "Client certificate in PEM."),
    ("--tls-key", None, "FILE", "Private key of the client certificate in PEM."),
)
"""The option, environment variable, metavar and help of each way to be let in."""


class CommandOutput:
    """Writes results to standard output, progress and errors to standard error."""

    def __init__(self) -> None:
        self.json = False
        self.timeout = 10.0
        self.waits = False
        """Whether the first connection is tried for the whole timeout, as the user, or a program
        that runs for long, asks. Otherwise a service that is not there is an error at once."""
        self.access: dict[str, Any] = {}

    def connect(self, server: str, patience: float = 0.0) -> Client:
        """Returns a client of the service with the timeout, token and TLS that the options name;
        the timeout is at least `patience` seconds. Raises Unavailable if nothing listens there,
        with `waits` not within the timeout."""
        # A program that ends may close what a thread of gRPC still reads, of which gRPC then
        # complains. What matters to the user comes as an error of the call.
        if os.environ.get("GRPC_VERBOSITY") == "ERROR":
            os.environ["GRPC_VERBOSITY"] = "NONE"
        if math.isfinite(patience):
            wait_for_presence(server, self.timeout if self.waits else 0.0)
            self.waits = True  # later connections of a command come through a restart
        from ps2stream.client.client import Client

        return Client(server, **self.client_parameters(patience))

    def client_parameters(self, patience: float = 0.0) -> dict[str, Any]:
        """Returns the keyword arguments of a client, which is made with its target besides."""
        given = dict(self.access)
        if (file := given.pop("token_file", None)) is not None:
            given["token"] = _read_token(file)
        return {"timeout": max(self.timeout, patience), **given}

    def print_line(self, line: str) -> None:
        """Prints a line for people; nothing with --json."""
        if not self.json:
            click.echo(line)

    def emit(self, value: dict[str, Any], line: str | None = None) -> None:
        """Prints a result: with --json as one JSON object on a line, else `line`."""
        if self.json:
            click.echo(json.dumps(value, ensure_ascii=False))
        elif line is not None:
            click.echo(line)

    def progress_console(self) -> Console:
        """Returns the console of progress bars: standard error, quiet with --json or where
        standard error is not a terminal."""
        from rich.console import Console

        return Console(stderr=True, quiet=self.json or not sys.stderr.isatty())

    def report_error(self, error: errors.Ps2StreamError) -> int:
        """Prints the error on one line; returns the exit code."""
        code, name = next(
            ((code, name) for kind, code, name in CODES if isinstance(error, kind)),
            (FAILED, "failed"),
        )
        message = printable(" ".join(str(error).split()))
        if code == NO_TOKEN and not self.access.keys() & {"token", "token_file", "tls_cert"}:
            message += "; --token-file names one"
        line = f"ps2stream: {message}"
        if self.json:
            body: dict[str, Any] = {"code": name, "message": message}
            if isinstance(error, errors.InvalidArgument):
                body["violations"] = [v._asdict() for v in error.violations]
            line = json.dumps({"error": body}, ensure_ascii=False)
        with suppress(OSError):  # where not even this can be written, the code tells
            click.echo(line, err=True)
        return code


class FiniteRange(click.FloatRange):
    """A range of floats that refuses nan and infinity, which no bound would stop."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return found


def printable(text: str) -> str:
    """Puts text of unknown origin on one line, with spaces for control characters and for those
    that turn the direction of all that follows."""
    return _CONTROL.sub(" ", text)


def _read_token(file: str) -> str:
    try:
        found = Path(file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise errors.invalid("--token-file", f"{file}: {why}") from None
    if not found:
        raise errors.invalid("--token-file", f"{file}: is empty")
    return found


@contextmanager
def on_interrupt(act: Callable[[], None]) -> Iterator[None]:
    """Calls `act` on Ctrl-C, SIGTERM or a closed terminal within the block, instead of ending
    the process. Under nohup a closed terminal does nothing."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = [signal.signal(number, lambda *_: act()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def wait_for_interrupt(told: threading.Event) -> None:
    """Waits until `told` is set, by what on_interrupt calls or anything else. Python handles a
    signal in the main thread, and one that another thread has taken does not wake that up; so it
    wakes by itself."""
    while not told.wait(WAKE_S):
        pass


@contextmanager
def guard_output_file(path: str) -> Iterator[None]:
    """Raises InvalidArgument for an output file that cannot be written: where possible before the
    block that makes its content, else after it."""
    try:
        if not Path(path).parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "its folder does not exist", path)
        if Path(path).is_dir():
            raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
        yield
    except OSError as error:
        if error.filename is None or Path(error.filename) != Path(path):
            raise
        problem = f"cannot write {path}: {error.strerror}"
        raise errors.invalid("--output", problem) from None


pass_output = click.make_pass_decorator(CommandOutput, ensure=True)


def json_option(command: F) -> F:
    """Adds --json, which sets Output.json."""

    def keep(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.find_root().ensure_object(CommandOutput).json |= value

    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=keep,
        is_eager=True,
        help="Print one JSON object per line; errors too, on standard error.",
    )(command)


def parse_address(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Checks the value of an option HOST:PORT, as its callback; unix:PATH is a Unix socket."""
    if value.startswith("unix:/"):
        return value
    host, _, port = value.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 1 << 16) or "/" in host:
        raise click.BadParameter(f"expected HOST:PORT, got {value!r}", ctx, param)
    return value


def parse_server(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Checks the value of an option HOST:PORT[,HOST:PORT...], as its callback."""
    return ",".join(parse_address(ctx, param, each.strip()) for each in value.split(","))


def parse_addresses(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Checks the values of an option HOST:PORT that may be given repeatedly, as its callback."""
    return tuple(parse_address(ctx, param, value) for value in values)


def access_options(command: F) -> F:
    """Adds the options of ACCESS, which are kept in Output.access."""

    def keep(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        access = ctx.find_root().ensure_object(CommandOutput).access
        other = {"token": "token_file", "token_file": "token"}.get(param.name or "", "")
        # Click reads options before the environment, so that --token wins over PS2STREAM_TOKEN_FILE
        # and --token-file over PS2STREAM_TOKEN.
        if value is not None and param.name is not None and other not in access:
            access[param.name] = value

    for name, variable, metavar, text in reversed(ACCESS):
        command = click.option(
            name,
            envvar=variable,
            show_envvar=variable is not None,
            metavar=metavar,
            expose_value=False,
            callback=keep,
            help=text,
        )(command)
    return command


def timeout_option(command: F) -> F:
    """Adds --timeout and the options of ACCESS, which are kept in the Output."""

    def keep(ctx: click.Context, param: click.Parameter, value: float) -> None:
        output = ctx.find_root().ensure_object(CommandOutput)
        output.timeout = value
        output.waits = ctx.get_parameter_source(param.name or "") is not ParameterSource.DEFAULT

    return click.option(
        "--timeout",
        type=FiniteRange(min=0, min_open=True),
        default=10.0,
        show_default=True,
        expose_value=False,
        callback=keep,
        help="Seconds to wait for an answer; if given, also for a service that is not there yet.",
    )(access_options(command))


def server_option(command: F) -> F:
    """Adds --server, the address of the service, --timeout and the options of ACCESS."""
    return click.option(
        "--server",
        default="127.0.0.1:7077",
        envvar="PS2STREAM_SERVER",
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT[,...]",
        callback=parse_server,
        help="Address of a dispatcher of the running service, or of several.",
    )(timeout_option(command))


class CommandGroup(click.Group):
    """A group of commands that turns the package's errors into one line and an exit code."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Makes the context as click does, which prints --help and --version."""
        output = CommandOutput()
        output.json = "--json" in args
        try:
            return super().make_context(info_name, args, parent, **extra)
        except OSError as error:
            raise click.exceptions.Exit(_report_write_error(output, error)) from None
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None

    def invoke(self, ctx: click.Context) -> Any:
        output = ctx.ensure_object(CommandOutput)
        # Click finds wrong arguments before it reads a command's own --json.
        as_json = output.json or "--json" in ctx.args
        try:
            return super().invoke(ctx)
        except click.UsageError as found_error:
            error = suggest_option(found_error)
            if not as_json:
                raise error from None
            output.json = True
            ctx.exit(output.report_error(_argument_error(error.format_message())))
        except UnicodeEncodeError as error:
            ctx.exit(output.report_error(_argument_error(f"{error.object!r} is not Unicode text")))
        except errors.Ps2StreamError as error:
            ctx.exit(output.report_error(error))
        except ModuleNotFoundError as error:
            command = ctx.invoked_subcommand or ""
            user, extra = f"ps2stream {command}", COMMAND_EXTRAS.get(command)
            if (explained := explain_missing_package(error, user, extra)) is None:
                raise
            ctx.exit(output.report_error(explained))
        except TimeoutError as error:
            found = errors.Unavailable(str(error) or "the service did not answer in time")
            ctx.exit(output.report_error(found))
        except OSError as error:
            ctx.exit(_report_write_error(output, error))
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


def counted(number: int, one: str, many: str = "") -> str:
    """Returns `1 match` or `2 matches`; `many` is `one` with an s unless it is given."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _report_write_error(output: CommandOutput, error: OSError) -> int:
    """Prints on one line why output could not be written; returns the exit code. Raises the error
    again where the reader of a pipe went away, with which click ends quietly."""
    if error.errno == errno.EPIPE:
        raise error
    _drop_output()
    found = str(error)
    if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        found = f"cannot write the output: {error.strerror}"
    return output.report_error(errors.Ps2StreamError(found))


def _drop_output() -> None:
    """Drops what standard output still holds and cannot take, as on a full disk: Python would write
    it once more when it ends, complain, and replace the exit code."""
    if sys.stdout is None:  # closed before the program began
        return
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _argument_error(problem: str) -> errors.InvalidArgument:
    return errors.invalid("arguments", problem)
