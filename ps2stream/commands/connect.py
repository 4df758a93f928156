"""`ps2stream connect`: connectors to and from other systems."""

from __future__ import annotations

import click

from ps2stream.commands.connect_kafka import kafka_sink, kafka_source
from ps2stream.commands.connect_mqtt import mqtt_source
from ps2stream.commands.connect_webhook import webhook


@click.group()
def connect() -> None:
    """Take posts from other systems, and hand matches on to them.

    Each connector is a program of its own, a client of the service, and runs until Ctrl-C or
    SIGTERM: then it finishes what is under way and exits 0. Killed, it goes on where it was
    when it is started again; docs/howto says what comes twice then.
    """


for command in (kafka_source, kafka_sink, mqtt_source, webhook):
    connect.add_command(command)
