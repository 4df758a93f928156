"""`ps2stream bench peers`: other engines under the same work."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, cast

import click

from ps2stream.commands.bench_options import count_option, show_result
from ps2stream.commands.output import CommandOutput, json_option, pass_output
from ps2stream.errors import invalid


@click.command()
@click.argument("peer", type=click.Choice(["lucene", "fast", "tile38"]))
@click.option(
    "--code",
    type=click.Path(path_type=Path, exists=True),
    required=True,
    metavar="PATH",
    help="The peer itself. lucene: the folder of its jars; fast: a checkout of its code; tile38: "
    "the program tile38-server.",
)
@count_option("--queries", 100_000, "Number of saved searches, or of fences.")
@count_option(
    "--objects", 0, "Number of objects, or of positions; 0: as many as are worth it.", least=0
)
@count_option("--runs", 3, "Number of measured runs.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the workload.")
@json_option
@pass_output
def peers(
    output: CommandOutput,
    /,
    peer: str,
    code: Path,
    queries: int,
    objects: int,
    runs: int,
    seed: int,
) -> None:
    """Measure PS2Stream and another engine with the same work, and compare their results.

    \b
      lucene  Lucene Monitor: saved searches, the index alone
      fast    FAST: saved searches, the index alone
      tile38  Tile38: fences with a rule over moving things, server against server

    None of them is installed with PS2Stream; docs/comparison.md says how to get them. The exit code
    is 1 if the results differ.
    """
    if peer == "tile38":
        from ps2stream.benchmarks.peers.fences import run_fences

        if code.is_dir():
            raise invalid("code", f"{code} is a folder; tile38 needs the program tile38-server")
        found = run_fences(code, queries, objects or 20_000, runs, seed)
    else:
        from ps2stream.benchmarks.peers.java import run_java_peer

        name = cast(Literal["lucene", "fast"], peer)
        found = run_java_peer(name, code, queries, objects, runs, seed)
    show_result(output, found)
