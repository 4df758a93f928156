"""`ps2stream backup` and `ps2stream restore`: copy a data directory, and make one of the copy."""

from __future__ import annotations

from pathlib import Path

import click

from ps2stream.commands.output import CommandOutput, json_option, pass_output

_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("dest", type=_FOLDER)
@click.option("--data-dir", type=_FOLDER, metavar="PATH", default=Path("ps2stream-data"),
              envvar="PS2STREAM_DATA_DIR", show_default=True, show_envvar=True,
              help="Data directory of the service.")  # fmt: skip
@json_option
@pass_output
def backup(output: CommandOutput, /, dest: Path, data_dir: Path) -> None:
    """Copy a data directory to DEST, a new or empty folder.

    The service may keep running, and only the reading slows it down. The copy contains
    everything that was acknowledged before. Back up a service on PostgreSQL with pg_dump.
    """
    from ps2stream.store.backup import back_up

    made = back_up(data_dir, dest)
    output.emit(
        {"event": "backup", "to": str(dest), "bytes": made.size, "lsn": made.lsn},
        f"copied {made.size:,} bytes to {dest}, up to LSN {made.lsn}",
    )


@click.command()
@click.argument("src", type=_FOLDER)
@click.option("--data-dir", type=_FOLDER, metavar="PATH", required=True,
              help="Data directory to create: a new or empty folder.")  # fmt: skip
@json_option
@pass_output
def restore(output: CommandOutput, /, src: Path, data_dir: Path) -> None:
    """Create a data directory from the backup SRC.

    Sessions continue with what the backup contains, and receive a gap for the matches that came
    later; a cursor from after the backup remains valid. Matches that were delivered after the
    backup, of objects that were in flight when it was made, are delivered again.
    """
    from ps2stream.store.backup import restore

    made = restore(src, data_dir)
    output.emit(
        {"event": "restored", "to": str(data_dir), "bytes": made.size, "lsn": made.lsn},
        f"restored {made.size:,} bytes to {data_dir}, up to LSN {made.lsn}; start it with "
        f"ps2stream serve --data-dir {data_dir}",
    )
