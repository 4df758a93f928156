"""`ps2stream doctor`: check a machine and a data directory as an operator would."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ps2stream import config
from ps2stream.commands.output import FAILED, CommandOutput, json_option, pass_output


@click.command()
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), metavar="PATH",
              help="Data directory to check.  [default: that of the settings]")  # fmt: skip
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE",
              envvar="PS2STREAM_CONFIG", show_envvar=True,
              help="TOML file of the service's settings.")  # fmt: skip
@json_option
@pass_output
def doctor(output: CommandOutput, /, data_dir: Path | None, file: Path | None) -> None:
    """Check this machine and the data directory of a service, and say what to do.

    The command changes nothing, and may be run while the service runs. Exit code 1 if a check
    fails; a warning is not a failure.
    """
    from ps2stream.cluster.doctor_checks import check_all

    failed = False
    for found in check_all(config.load({"data_dir": data_dir}, config=file)):
        failed |= found.verdict == "fail"
        line = f"{found.verdict:<5} {found.what}: {found.found}"
        output.emit(found._asdict(), f"{line}; {found.advice}" if found.advice else line)
    if failed:
        sys.exit(FAILED)
