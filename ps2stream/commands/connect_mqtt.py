"""`ps2stream connect mqtt-source`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ps2stream.commands.broker_options import broker_options
from ps2stream.commands.connecting import (
    FILE,
    SOURCE,
    area_options,
    exclusion_error,
    run_connector,
    running_options,
    source_options,
)
from ps2stream.commands.output import CommandOutput, pass_output
from ps2stream.extras import name_missing_extra


@click.command("mqtt-source")
@broker_options
@click.option(
    "--topic",
    "topics",
    required=True,
    multiple=True,
    help="Topic filter such as sensors/+/posts; may be given repeatedly. $share/GROUP/FILTER "
    "shares the messages among several connectors.",
)
@click.option(
    "--client-id",
    default="ps2stream",
    show_default=True,
    help="Name of the session that the broker keeps; each connector needs its own.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["json", "wis2"]),
    default="json",
    show_default=True,
    help="Format of the messages: objects of JSON, or the notifications of WMO's WIS2, whose "
    "geometry may be an area or absent.",
)
@area_options
@source_options
@click.option(
    "--window",
    type=click.IntRange(1, 65535),
    default=1000,
    show_default=True,
    help="Largest number of unacknowledged messages at a time; the broker has a limit too.",
)
@click.option(
    "--session-expiry",
    type=click.IntRange(1, 0xFFFFFFFF),
    default=604_800,
    show_default=True,
    help="Seconds that the broker keeps the session while the connector is disconnected.",
)
@click.option(
    "--dead-letters",
    type=FILE,
    metavar="FILE",
    help="File to which messages that are not posts are appended.",
)
@click.option(
    "--skip-bad",
    is_flag=True,
    help="Count messages that are not posts, and skip them. Without this option and "
    "--dead-letters, the first such message stops the connector.",
)
@running_options
@pass_output
def mqtt_source(
    output: CommandOutput,
    /,
    server: str,
    broker: str,
    topics: tuple[str, ...],
    client_id: str,
    kind: str,
    spacing_km: float,
    most_objects: int,
    fields: str,
    attributes: str | None,
    time_unit: Any,
    username: str | None,
    password_file: Path | None,
    broker_ca: Path | None,
    broker_cert: Path | None,
    broker_key: Path | None,
    window: int,
    session_expiry: int,
    dead_letters: Path | None,
    skip_bad: bool,
    **how: Any,
) -> None:
    """Publish the messages of MQTT topics: JSON objects with lat, lon and text, or WIS2.

    The connector uses MQTT 5 with QoS 1 and a session that outlives the connection: a message
    is acknowledged once the service has stored its post durably. Messages that were not
    acknowledged when the connection broke are published again with the same object id: the
    message's own, or a hash of topic and content.

    \b
      ps2stream connect mqtt-source --broker mqtt://localhost --topic 'posts/#'
      ps2stream connect mqtt-source --broker mqtts://globalbroker.example.org --format wis2 \\
        --topic 'cache/a/wis2/+/data/core/weather/#' --username everyone \\
        --password-file everyone.password --dead-letters wis2.bad
    """
    with name_missing_extra("ps2stream connect mqtt-source", "mqtt"):
        from ps2stream.connectors.mapping import RecordFields
        from ps2stream.connectors.mqtt_broker import BrokerAddress
        from ps2stream.connectors.mqtt_source import JsonMessages, MqttSource, MqttSourceOptions
        from ps2stream.posts.members import AttributeChoice

    if dead_letters is not None and skip_bad:
        raise exclusion_error("--dead-letters", "--skip-bad")
    address = BrokerAddress(broker, username, password_file, broker_ca, broker_cert, broker_key)
    records: Any = JsonMessages(RecordFields(fields, time_unit, AttributeChoice(attributes)))
    if kind == "wis2":
        if fields or attributes is not None:
            raise exclusion_error("--format wis2", "--fields and --attributes")
        with name_missing_extra("ps2stream connect mqtt-source --format wis2", "feeds"):
            from ps2stream.connectors.wis2_notices import Wis2Notices
        records = Wis2Notices(spacing_km, most_objects)
    options = MqttSourceOptions(
        address,
        topics,
        client_id,
        "file" if dead_letters else "skip" if skip_bad else "stop",
        dead_letters,
        window,
        session_expiry,
    )
    counted = tuple(name for name in SOURCE if name not in ("lag", "assigned", "waiting"))
    with run_connector(output, "mqtt-source", counted, how) as run, output.connect(server) as to:
        source = MqttSource(to, records, options, run.counts, run.teller)
        source.run(
            run.stop,
            lambda: run.ready(
                {
                    "broker": broker,
                    "topics": list(topics),
                    "client_id": client_id,
                    "server": server,
                },
                f"publishing {', '.join(topics)} to {server} as client {client_id}",
            ),
        )
