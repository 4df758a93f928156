"""python -m tests.history FILE...: the verdict of a history, as JSON. See `record` for the file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from tests.history.check import check
from tests.history.reading import HistoryError


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
def main(files: tuple[Path, ...]) -> None:
    """Judge the history in FILES, each of which has the calls of some clients.

    Exit code 1 when a promise was broken, 2 when a file is no history.
    """
    try:
        verdict = check(files)
    except HistoryError as error:
        raise click.UsageError(str(error)) from None
    click.echo(json.dumps(verdict.to_dict(), indent=1))
    sys.exit(not verdict.held)


if __name__ == "__main__":
    main()
