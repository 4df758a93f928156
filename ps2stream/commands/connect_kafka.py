"""`ps2stream connect kafka-source` and `kafka-sink`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ps2stream.commands.connecting import (
    FILE,
    SINK,
    SOURCE,
    connect_patiently,
    exclusion_error,
    run_connector,
    running_options,
    source_options,
)
from ps2stream.commands.output import CommandOutput, pass_output
from ps2stream.extras import name_missing_extra


@click.command("kafka-source")
@click.option(
    "--bootstrap",
    required=True,
    metavar="HOST:PORT,...",
    help="Addresses of brokers of the Kafka cluster.",
)
@click.option("--topic", required=True, help="Topic whose records are published as posts.")
@click.option(
    "--group",
    default="ps2stream",
    show_default=True,
    help="Consumer group; the processes of a group share the partitions of the topic.",
)
@source_options
@click.option(
    "--dead-letter-topic",
    metavar="TOPIC",
    help="Topic that receives the records that are not posts.",
)
@click.option(
    "--skip-bad",
    is_flag=True,
    help="Count records that are not posts, and skip them. Without this option and "
    "--dead-letter-topic, the first such record stops the connector.",
)
@click.option(
    "--from",
    "start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Position at which a group begins that has committed nothing.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    default=2000,
    show_default=True,
    help="Largest number of records published at once.",
)
@click.option(
    "--kafka-config",
    type=FILE,
    metavar="FILE",
    help="File of librdkafka properties, one NAME=VALUE per line: TLS, SASL, sizes.",
)
@running_options
@pass_output
def kafka_source(
    output: CommandOutput,
    /,
    server: str,
    bootstrap: str,
    topic: str,
    group: str,
    fields: str,
    attributes: str | None,
    time_unit: Any,
    dead_letter_topic: str | None,
    skip_bad: bool,
    start: Any,
    batch: int,
    kafka_config: Path | None,
    **how: Any,
) -> None:
    """Publish the records of a Kafka topic: JSON objects with lat, lon and text.

    The offset of a record is committed once the service has stored its post durably. After a
    crash, records whose offsets were not committed are published again with the same object
    id: the record's own, or topic/partition/offset.

    \b
      ps2stream connect kafka-source --bootstrap localhost:9092 --topic posts
    """
    with name_missing_extra("ps2stream connect kafka-source", "kafka"):
        from ps2stream.connectors.kafka_source import KafkaSource, KafkaSourceOptions
        from ps2stream.connectors.mapping import RecordFields
        from ps2stream.posts.members import AttributeChoice

    if dead_letter_topic is not None and skip_bad:
        raise exclusion_error("--dead-letter-topic", "--skip-bad")
    records = RecordFields(fields, time_unit, AttributeChoice(attributes))
    options = KafkaSourceOptions(
        bootstrap,
        topic,
        group,
        kafka_config,
        "topic" if dead_letter_topic else "skip" if skip_bad else "stop",
        dead_letter_topic or "",
        batch,
        start,
    )
    with run_connector(output, "kafka-source", SOURCE, how) as run, output.connect(server) as to:
        source = KafkaSource(to, records, options, run.counts, run.teller)
        source.run(
            run.stop,
            lambda partitions: run.ready(
                {"topic": topic, "partitions": partitions, "group": group, "server": server},
                f"publishing {topic} ({partitions} partitions) to {server} as group {group}",
            ),
        )


@click.command("kafka-sink")
@click.option(
    "--session", default="default", show_default=True, help="Session whose matches are written."
)
@click.option(
    "--bootstrap",
    required=True,
    metavar="HOST:PORT,...",
    help="Addresses of brokers of the Kafka cluster.",
)
@click.option("--topic", required=True, help="Topic that receives the matches.")
@click.option(
    "--id",
    "name",
    help="Name of the sink, which is its transactional id; the topic NAME-cursor holds its "
    "position.  "
    "[default: ps2stream-SESSION]",
)
@click.option(
    "--kafka-config",
    type=FILE,
    metavar="FILE",
    help="File of librdkafka properties, one NAME=VALUE per line: TLS, SASL, sizes.",
)
@running_options
@pass_output
def kafka_sink(
    output: CommandOutput,
    /,
    server: str,
    session: str,
    bootstrap: str,
    topic: str,
    name: str | None,
    kafka_config: Path | None,
    **how: Any,
) -> None:
    """Write the matches of a session to a Kafka topic, as JSON objects.

    The key is the id of the query. The matches and the position in the session are written in
    one transaction, so that a consumer that reads only what is committed
    (isolation.level=read_committed) gets every match once. Only then are the matches
    acknowledged to the service. The header ps2stream-seq holds the number of the match.

    \b
      ps2stream connect kafka-sink --session alerts --bootstrap localhost:9092 --topic matches
    """
    with name_missing_extra("ps2stream connect kafka-sink", "kafka"):
        from ps2stream.connectors.kafka_sink import KafkaSink, KafkaSinkOptions

    options = KafkaSinkOptions(
        bootstrap, topic, session, name or f"ps2stream-{session}", kafka_config
    )
    with (
        run_connector(output, "kafka-sink", SINK, how) as run,
        connect_patiently(output, server) as to,
    ):
        sink = KafkaSink(to, options, run.counts, run.teller)
        sink.run(
            run.stop,
            lambda after: run.ready(
                {"session": session, "topic": topic, "id": options.name, "after": after},
                f"writing the matches of {session} to {topic}, from number {after + 1} on",
            ),
        )
