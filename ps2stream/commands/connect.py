"""`ps2stream connect`: connectors to and from other systems."""

from __future__ import annotations

import click

from ps2stream.commands.connect_atom import atom
from ps2stream.commands.connect_feeds import cap_source, geojson_source
from ps2stream.commands.connect_file import file_source
from ps2stream.commands.connect_jetstream import jetstream_source
from ps2stream.commands.connect_kafka import kafka_sink, kafka_source
from ps2stream.commands.connect_mail import mail, mail_confirm, mail_invite
from ps2stream.commands.connect_mqtt import mqtt_source
from ps2stream.commands.connect_mqtt_sink import mqtt_sink
from ps2stream.commands.connect_ntfy import ntfy
from ps2stream.commands.connect_slack import slack
from ps2stream.commands.connect_webhook import webhook


@click.group()
def connect() -> None:
    """Read posts from other systems, and write matches to them.

    Each connector is a separate program, a client of the service, which runs until Ctrl-C or
    SIGTERM; it then finishes what is in progress and exits with code 0. A connector that was
    killed continues where it was when it is started again; docs/howto describes what may then be
    sent twice.
    """


for command in (
    *(kafka_source, mqtt_source, geojson_source, cap_source, jetstream_source, file_source),
    *(kafka_sink, mqtt_sink, webhook),
    *(slack, ntfy, atom, mail, mail_invite, mail_confirm),
):
    connect.add_command(command)
