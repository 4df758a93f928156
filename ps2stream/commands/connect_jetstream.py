"""`ps2stream connect jetstream-source`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ps2stream.commands.connecting import FILE, run_connector, running_options
from ps2stream.commands.output import CommandOutput, FiniteRange, pass_output
from ps2stream.extras import name_missing_extra

JETSTREAM = (
    "taken", "done", "no_place", "deleted", "withdrawn", "other", "repeats", "bad", "retries",
)  # fmt: skip
"""The counts of a Jetstream."""


@click.command("jetstream-source")
@click.option(
    "--url",
    required=True,
    help="URL of the Jetstream: wss://HOST/subscribe, or ws:// without TLS. Redirects are not "
    "followed.",
)
@click.option(
    "--state",
    type=FILE,
    metavar="FILE",
    help="File that keeps the cursor, so that a restart goes on there. Without it, each start "
    "begins with what is new.",
)
@click.option(
    "--gazetteer",
    type=FILE,
    metavar="FILE",
    help="File of places, CSV or Parquet with name, lat, lon and optionally radius_km and "
    "population. A post without a place of its own has the one place that its text names.",
)
@click.option(
    "--ratio",
    type=FiniteRange(min=1),
    default=10.0,
    show_default=True,
    help="Population of the largest place of a name, as a multiple of the next one's, from which "
    "on the name means it; otherwise it means none.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(1024, 16 << 20),
    default=256 << 10,
    show_default=True,
    help="Largest size of a message; the connector asks the server to leave out larger ones.",
)
@click.option(
    "--silence",
    type=FiniteRange(min=1, max=3600),
    default=60.0,
    show_default=True,
    help="Seconds without a message after which the connector connects again.",
)
@click.option(
    "--withdraw/--no-withdraw",
    default=True,
    show_default=True,
    help="Whether posts that were deleted are withdrawn from the service too; where it asks for "
    "tokens, this needs one of scope withdraw.",
)
@click.option("--feed-ca", type=FILE, metavar="FILE", help="CA certificate in PEM.")
@click.option(
    "--dead-letters",
    type=FILE,
    metavar="FILE",
    help="File to which events that cannot be read or published are appended, up to 64 MiB. They "
    "are always counted, and never end the connector.",
)
@running_options
@pass_output
def jetstream_source(
    output: CommandOutput,
    /,
    server: str,
    url: str,
    state: Path | None,
    gazetteer: Path | None,
    ratio: float,
    max_bytes: int,
    silence: float,
    withdraw: bool,
    feed_ca: Path | None,
    dead_letters: Path | None,
    **how: Any,
) -> None:
    """Publish the posts of a Jetstream of Bluesky that have a place.

    The place is the one that the author gave in the post (community.lexicon.location.geo) or, with
    --gazetteer, the one that the text names; the attributes place_source and place_radius_km say
    which. Posts without a place are counted. Their language is the attribute lang. After a crash,
    the posts of the last seconds may be published again, with the same object ids.

    \b
      ps2stream connect jetstream-source --state bluesky.state \\
        --url wss://jetstream2.us-east.bsky.network/subscribe
    """
    with name_missing_extra("ps2stream connect jetstream-source", "feeds"):
        from ps2stream.connectors.gazetteer import read_gazetteer
        from ps2stream.connectors.jetstream_socket import JetstreamAddress
        from ps2stream.connectors.jetstream_source import JetstreamOptions, JetstreamSource

    address = JetstreamAddress(url, max_bytes, silence, feed_ca)
    places = None if gazetteer is None else read_gazetteer(gazetteer, ratio)
    options = JetstreamOptions(address, state, dead_letters, places, withdraw)
    with (
        run_connector(output, "jetstream-source", JETSTREAM, how) as run,
        output.connect(server) as to,
    ):
        source = JetstreamSource(to, options, run.counts, run.teller)
        source.run(
            run.stop,
            lambda: run.ready(
                {"url": address.name, "server": server},
                f"publishing the posts with a place of {address.name} to {server}",
            ),
        )
