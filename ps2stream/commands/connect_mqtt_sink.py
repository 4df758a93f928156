"""`ps2stream connect mqtt-sink`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ps2stream.commands.broker_options import broker_options
from ps2stream.commands.connecting import (
    SINK,
    connect_patiently,
    run_connector,
    running_options,
)
from ps2stream.commands.output import CommandOutput, pass_output
from ps2stream.commands.sink_options import refusal_options, session_option
from ps2stream.extras import name_missing_extra


@click.command("mqtt-sink")
@session_option
@click.option(
    "--topic",
    default="ps2stream/{session}/{query}",
    show_default=True,
    help="Topic of the matches. In ids, +, #, /, $, % and control characters are percent-encoded.",
)
@click.option(
    "--client-id",
    help="Client id at the broker; each connector needs its own.  [default: ps2stream-SESSION]",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    help="Largest number of matches acknowledged to the service at once.",
)
@broker_options
@refusal_options
@running_options
@pass_output
def mqtt_sink(
    output: CommandOutput,
    /,
    server: str,
    session: str,
    broker: str,
    topic: str,
    client_id: str | None,
    batch: int,
    username: str | None,
    password_file: Path | None,
    broker_ca: Path | None,
    broker_cert: Path | None,
    broker_key: Path | None,
    give_up: float,
    dead_letters: Path | None,
    **how: Any,
) -> None:
    """Publish the matches of a session to an MQTT broker, each as a JSON object.

    The connector uses MQTT 5 with QoS 1. Matches are acknowledged to the service once the
    broker has acknowledged their messages. The user properties ps2stream-seq,
    ps2stream-session and ps2stream-query hold the number of the match, the session and the
    query. After a crash, messages that were not acknowledged are published again with the same
    number.

    \b
      ps2stream connect mqtt-sink --session alerts --broker mqtt://localhost
    """
    with name_missing_extra("ps2stream connect mqtt-sink", "mqtt"):
        from ps2stream.connectors.mqtt_broker import BrokerAddress
        from ps2stream.connectors.mqtt_publisher import MqttPublisher
        from ps2stream.connectors.mqtt_sink import MqttReceiver, MqttTopics
        from ps2stream.connectors.sink_loop import SinkLoop, SinkOptions

    address = BrokerAddress(broker, username, password_file, broker_ca, broker_cert, broker_key)
    publisher = MqttPublisher(address, client_id or f"ps2stream-{session}")
    receiver = MqttReceiver(publisher, MqttTopics(topic, session), session)
    options = SinkOptions(session, batch, give_up_s=give_up, dead_letters=dead_letters)
    with (
        run_connector(output, "mqtt-sink", SINK, how) as run,
        connect_patiently(output, server) as to,
    ):
        SinkLoop(to, options, receiver, run.counts, run.teller).run(
            run.stop,
            lambda: run.ready(
                {"session": session, "broker": broker, "topic": topic, "server": server},
                f"publishing the matches of {session} to {topic}",
            ),
        )
