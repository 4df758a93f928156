"""`ps2stream connect geojson-source` and `ps2stream connect cap-source`: feeds that are polled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from ps2stream.commands.connecting import (
    FILE,
    area_options,
    exclusion_error,
    run_connector,
    running_options,
)
from ps2stream.commands.output import CommandOutput, FiniteRange, pass_output
from ps2stream.commands.publish import attributes_option
from ps2stream.extras import name_missing_extra

if TYPE_CHECKING:
    from ps2stream.connectors.counts import ConnectorCounts
    from ps2stream.connectors.feed_source import FeedOptions, FeedReader

F = TypeVar("F", bound=Callable[..., Any])
FEED = ("polls", "taken", "done", "objects", "bad", "retries", "coarse", "expired")
"""The counts of polled sources."""


def feed_options(command: F) -> F:
    """Adds the options of polled sources."""
    for option in (
        click.option(
            "--url", required=True, help="URL of the feed: https://... or http://...; no password."
        ),
        click.option(
            "--state",
            type=FILE,
            metavar="FILE",
            help="File that keeps what was published, so that a restart goes on there. Without it, "
            "each start publishes the whole feed.",
        ),
        click.option(
            "--every",
            type=FiniteRange(min=1, max=86_400),
            default=60.0,
            show_default=True,
            help="Seconds between two polls, give or take a tenth.",
        ),
        click.option("--once", is_flag=True, help="Poll once, and end when all is published."),
        click.option(
            "--max-bytes",
            type=click.IntRange(1, 1 << 30),
            default=64 << 20,
            show_default=True,
            help="Largest size of a document, after unpacking.",
        ),
        click.option(
            "--allow-host",
            "hosts",
            multiple=True,
            metavar="HOST",
            help="Host to which redirects and links may lead, beside that of the URL; may be given "
            "repeatedly.",
        ),
        click.option(
            "--contact",
            metavar="TEXT",
            help="Mail address or URL that is sent with each request, which some servers want.",
        ),
        click.option("--feed-ca", type=FILE, metavar="FILE", help="CA certificate in PEM."),
        click.option(
            "--dead-letters",
            type=FILE,
            metavar="FILE",
            help="File to which records that cannot be published are appended.",
        ),
        click.option(
            "--skip-bad",
            is_flag=True,
            help="Count records that cannot be published, and skip them. Without this option and "
            "--dead-letters, such a record ends the connector once the others are published.",
        ),
    ):
        command = option(command)
    return area_options(command)


class FeedWords(NamedTuple):
    """The values of feed_options, as the command got them."""

    url: str
    state: Path | None
    every: float
    once: bool
    max_bytes: int
    hosts: tuple[str, ...]
    contact: str | None
    feed_ca: Path | None
    dead_letters: Path | None
    skip_bad: bool

    def to_options(self) -> FeedOptions:
        """Returns the options of the source. Raises InvalidArgument."""
        from ps2stream.connectors.feed_http import FetchLimits, make_user_agent
        from ps2stream.connectors.feed_source import FeedOptions

        if self.dead_letters is not None and self.skip_bad:
            raise exclusion_error("--dead-letters", "--skip-bad")
        agent = make_user_agent(self.contact)
        limits = FetchLimits(self.max_bytes, self.hosts, agent, self.feed_ca)
        bad: Any = "file" if self.dead_letters else "skip" if self.skip_bad else "stop"
        return FeedOptions(
            self.url, self.every, self.once, self.state, bad, self.dead_letters, limits
        )


def run_feed(
    output: CommandOutput,
    name: str,
    numbers: tuple[str, ...],
    server: str,
    options: FeedOptions,
    how: dict[str, Any],
    build: Callable[[ConnectorCounts], FeedReader],
) -> None:
    """Runs a polled source until it is stopped."""
    from ps2stream.connectors.feed_source import FeedSource

    with run_connector(output, name, numbers, how) as run, output.connect(server) as to:
        source = FeedSource(to, build(run.counts), options, run.counts, run.teller)
        where = options.url.partition("?")[0]
        source.run(
            run.stop,
            lambda: run.ready({"url": where, "server": server}, f"publishing {where} to {server}"),
        )


def split_words(words: dict[str, Any]) -> tuple[FeedWords, dict[str, Any]]:
    """Returns the values of feed_options, and the others."""
    return (
        FeedWords(**{name: words.pop(name) for name in FeedWords._fields}),
        words,
    )


@click.command("geojson-source")
@click.option(
    "--fields",
    default="text=title",
    show_default=True,
    metavar="NAME=PATH,...",
    help="Paths of time and text among the properties of a Feature, such as text=place,time=time; "
    "dots lead into objects.",
)
@click.option(
    "--time-unit",
    type=click.Choice(["ms", "s"]),
    default="ms",
    show_default=True,
    help="Unit of times that are numbers, counted from 1970; other times are ISO 8601.",
)
@attributes_option
@click.option(
    "--version-property",
    "version_name",
    default="updated",
    show_default=True,
    metavar="NAME",
    help="Property that changes when a Feature does, which is then published again. Features "
    "without it are published again when anything in them changes.",
)
@feed_options
@running_options
@pass_output
def geojson_source(
    output: CommandOutput,
    /,
    server: str,
    fields: str,
    time_unit: Any,
    attributes: str | None,
    version_name: str,
    spacing_km: float,
    most_objects: int,
    **rest: Any,
) -> None:
    """Publish the Features of a GeoJSON feed, such as one of earthquakes.

    The feed is requested again and again, and what is new or changed in it is published. A
    changed Feature is a new object: its id is that of the Feature and its version. A Feature that
    is an area becomes several objects, as docs/howto/alerts.md describes.

    \b
      ps2stream connect geojson-source --state quakes.state \\
        --url https://earthquake.usgs.gov/earthquakes/feed/v1.0/summary/all_hour.geojson
    """
    words, how = split_words(rest)
    with name_missing_extra("ps2stream connect geojson-source", "feeds"):
        from ps2stream.connectors.geojson_feed import GeoJsonFeed
        from ps2stream.connectors.mapping import RecordFields
        from ps2stream.posts.members import AttributeChoice

        options = words.to_options()
    records = RecordFields(fields, time_unit, AttributeChoice(attributes))
    run_feed(
        output,
        "geojson-source",
        FEED,
        server,
        options,
        how,
        lambda counts: GeoJsonFeed(records, version_name, spacing_km, most_objects, counts),
    )


@click.command("cap-source")
@click.option(
    "--places",
    type=FILE,
    metavar="FILE",
    help="GeoJSON of the areas that alerts name by a code, such as zones or counties, for alerts "
    "without a polygon or circle.",
)
@click.option(
    "--places-key",
    default="id",
    show_default=True,
    metavar="NAME",
    help="Property of a Feature of --places that is its code.",
)
@feed_options
@running_options
@pass_output
def cap_source(
    output: CommandOutput,
    /,
    server: str,
    places: Path | None,
    places_key: str,
    spacing_km: float,
    most_objects: int,
    **rest: Any,
) -> None:
    """Publish the alerts of a feed: CAP 1.2, Atom or RSS with links to it, or NWS GeoJSON.

    An alert has an area, and an object one position. So an alert becomes several objects, spread
    over its area and up to 1.4 times --spacing-km beyond it: no query at least --spacing-km wide
    misses an alert whose area it touches. Updates and cancellations also go where the messages
    went that they refer to. An alert that has expired is not published.

    \b
      ps2stream connect cap-source --state alerts.state --dead-letters alerts.bad \\
        --url https://api.weather.gov/alerts/active --contact me@example.org
    """
    words, how = split_words(rest)
    with name_missing_extra("ps2stream connect cap-source", "feeds"):
        from ps2stream.connectors.alert_places import AlertPlaces
        from ps2stream.connectors.alert_posts import AlertOptions, AlertPosts
        from ps2stream.connectors.cap_feed import CapFeed

        options = words.to_options()
    found = AlertOptions(spacing_km, most_objects, AlertPlaces(places, places_key))
    run_feed(
        output,
        "cap-source",
        FEED,
        server,
        options,
        how,
        lambda counts: CapFeed(options.url, AlertPosts(found, counts)),
    )
