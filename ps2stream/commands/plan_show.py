"""`ps2stream plan show`."""

from __future__ import annotations

import click

from ps2stream.commands.output import Output, json_option, pass_output
from ps2stream.commands.shared_data import shared_file

LAND = "ne_110m_land.geojson"


@click.command()
@click.argument("file")
@click.option("--png", metavar="FILE", help="Draw a map into this file.")
@click.option(
    "--objects", metavar="FILE", multiple=True, help="Posts to draw on it; may be repeated."
)
@click.option("--queries", metavar="FILE", multiple=True, help="Queries to draw on it; likewise.")
@click.option(
    "--outlines",
    metavar="FILE",
    help=f"GeoJSON behind the map.  [default: {LAND} of PS2STREAM_DATA, if there]",
)
@json_option
@pass_output
def show(
    output: Output,
    /,
    file: str,
    png: str | None,
    objects: tuple[str, ...],
    queries: tuple[str, ...],
    outlines: str | None,
) -> None:
    """Show a plan: leaves, parts, loads, balance and warnings, and a map.

    The map colours leaves by worker and hatches those that are divided by text.
    """
    from ps2stream.planner.show import show as tell

    land = shared_file(LAND)
    behind = outlines or (str(land) if land is not None else None)
    tell(file, output, png, objects, queries, behind)
