"""python -m tests.spark.sources: a pipeline from each source that is no file, run by hand.

Kafka and Delta need jars, which CI does not fetch: JARS are folders of them.
"""

from __future__ import annotations

import json
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.connectors.counts import ConnectorCounts, CountsReporter
from ps2stream.connectors.pipeline_config import build_job, merge_declarations
from ps2stream.connectors.spark_pipeline import COUNTS, choose_settings, run_pipeline
from ps2stream.errors import Ps2StreamError
from ps2stream.planner.spark_session import session
from tests.support.kafka_broker import Broker, broker
from tests.support.piped_posts import forget_last_batch

SESSION = "sources"
FILES = "maxFilesPerTrigger"
SOURCES = ("kafka", "rate", "socket", "delta")
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
Run = Callable[..., dict[str, int]]


@click.command()
@click.argument("sources", nargs=-1, type=click.Choice(SOURCES))
@click.option("--jars", multiple=True, type=click.Path(path_type=Path, file_okay=False))
@click.option("--rows", default=0, help="Records of Kafka whose speed is measured.")
def main(sources: tuple[str, ...], jars: tuple[Path, ...], rows: int) -> None:
    """Publish some posts from each of the SOURCES; exit code 1 unless each came once."""
    wanted = sources or SOURCES[:3]
    paths = [str(path.resolve()) for folder in jars for path in sorted(folder.glob("*.jar"))]
    settings = {"spark.jars": ",".join(paths)} if paths else {}
    if "delta" in wanted:
        settings |= _DELTA
    with (
        tempfile.TemporaryDirectory(prefix="sources-") as name,
        _serve(Path(name), settings) as (
            run,
            client,
            spark,
        ),
    ):
        client.insert("all", "flood", session=SESSION)
        works = {
            "rate": lambda: publish_rate(run),
            "socket": lambda: publish_socket(run),
            "delta": lambda: publish_delta(run, spark, Path(name)),
        }
        for source in wanted:
            if source == "kafka":
                with broker() as brokered:
                    due = publish_kafka(run, brokered)
                    judge(client, source, due)
                    if rows:
                        measure_kafka(run, brokered, rows)
            else:
                judge(client, source, works[source]())


@contextmanager
def _serve(folder: Path, settings: dict[str, str]) -> Iterator[tuple[Run, Client, Any]]:
    """Yields what runs a declaration and returns its counts, a client, and Spark."""
    own = Settings(runtime="local", port=0, workers=1, data_dir=folder / "data")
    base = {"source": {"format": "rate"}, "checkpoint": str(folder / "any"), "partitions": 2}
    with (
        start(own) as service,
        Client(service.targets[0], timeout=120) as client,
        session("sources", choose_settings(build_job(base)) | settings) as spark,
    ):

        def run(declared: dict[str, Any], seconds: float = 0) -> dict[str, int]:
            more = {"checkpoint": str(folder / declared["name"]), "partitions": 2}
            job = build_job({"trigger": "once", **more, **declared})
            counts, stop = ConnectorCounts(*COUNTS), threading.Event()
            teller = CountsReporter(counts, lambda value, line: None, 0)
            if seconds:
                threading.Timer(seconds, stop.set).start()
            run_pipeline(job, service.targets[0], {}, counts, teller, stop, lambda *way: None)
            return counts.now()

        yield run, client, spark


def judge(client: Client, source: str, due: Counter[str]) -> None:
    """Compares the matches that came with the posts that were due. A rate has no end: the
    micro-batch that was under way at the stop may have been published, and is not counted."""
    client.publish([{"id": "last", "lon": 1, "lat": 1, "text": "flood"}])
    found: Counter[str] = Counter()
    with client.subscribe(SESSION) as matches:
        for match in matches:
            if match.object_id == "last":
                break
            found[match.object_id] += 1
    if source == "rate":
        due = Counter(f"r{i}" for i in range(max(due.total(), found.total())))
    click.echo(f"{source}: {due.total()} due, {found.total()} came, equal: {found == due}")
    if found != due or not due:
        raise SystemExit(1)


def publish_rate(run: Run) -> Counter[str]:
    fields = {"id": "concat('r', value)", "lon": "1", "lat": "1", "text": "'flood'"}
    source = {"format": "rate", "options": {"rowsPerSecond": 50}}
    declared = {"name": "rate", "source": source, "posts": fields, "attributes": "none"}
    done = run(declared | {"trigger": "1s"}, 20)["done"]
    return Counter(f"r{i}" for i in range(done))


def publish_socket(run: Run) -> Counter[str]:
    rows = [{"id": f"s{i}", "lon": i, "lat": 1, "text": "flood"} for i in range(5)]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def write() -> None:
            with server.accept()[0] as connection:
                connection.sendall("".join(json.dumps(row) + "\n" for row in rows).encode())
                ended.wait(120)

        ended = threading.Event()
        thread = threading.Thread(target=write)
        thread.start()
        options = {"host": "127.0.0.1", "port": server.getsockname()[1]}
        schema = "id STRING, lon DOUBLE, lat DOUBLE, text STRING"
        source = {"format": "socket", "schema": schema, "options": options}
        run({"name": "socket", "source": source, "trigger": "1s"}, 20)
        ended.set()
        thread.join()
    return Counter(str(row["id"]) for row in rows)


def publish_delta(run: Run, spark: Any, folder: Path) -> Counter[str]:
    """Appends, then rows that are changed and deleted, which end the pipeline unless it passes
    over them; two times the driver dies when a micro-batch is published and not noted, the second
    time just before it passes over the changes."""
    table = str(folder / "table")

    def append(first: int, count: int) -> Counter[str]:
        rows = [(f"d{i}", i / 100, 1.0, "flood") for i in range(first, first + count)]
        frame = spark.createDataFrame(rows, "id STRING, lon DOUBLE, lat DOUBLE, text STRING")
        frame.repartition(3).write.format("delta").mode("append").save(table)
        return Counter(str(row[0]) for row in rows)

    def publish(**options: Any) -> dict[str, int]:
        source = {"format": "delta", "path": table}
        return run({"name": "delta", "source": source | {"options": options | {FILES: 1}}})

    def fails(change: str) -> None:
        spark.sql(change)
        try:
            publish()
        except Ps2StreamError as error:
            click.echo(f"delta: {change.split(maxsplit=1)[0]}: {error}")
            if "--option skipChangeCommits=true" not in str(error):
                raise SystemExit(1) from None
        else:
            raise SystemExit(f"delta: no error after {change}")

    due = append(0, 1500) + append(1500, 1500)
    publish()
    forget_last_batch(folder / "delta")
    fails(f"UPDATE delta.`{table}` SET text = 'flood and more' WHERE id = 'd7'")
    due += append(3000, 500)
    forget_last_batch(folder / "delta")
    publish(skipChangeCommits=True)
    fails(f"DELETE FROM delta.`{table}` WHERE id = 'd8'")
    due += append(3500, 500)
    publish(skipChangeCommits=True)
    return due


def declare_kafka(brokered: Broker, topic: str, **options: Any) -> dict[str, Any]:
    options |= {"kafka.bootstrap.servers": brokered.address, "subscribe": topic}
    schema = "lon DOUBLE, lat DOUBLE, text STRING"
    source = {"format": "kafka", "schema": schema}
    return {
        "name": topic,
        "source": source | {"options": {"startingOffsets": "earliest", **options}},
    }


def publish_kafka(run: Run, brokered: Broker) -> Counter[str]:
    """Two runs from one checkpoint, with records added in between."""
    brokered.create("posts", partitions=2)
    for count in (10, 4):
        rows = [{"lon": i, "lat": 1, "text": "flood"} for i in range(count)]
        brokered.produce("posts", [json.dumps(row).encode() for row in rows])
        run(declare_kafka(brokered, "posts"))
    return Counter(f"posts/{p}/{offset}" for p in range(2) for offset in range(7))


def measure_kafka(run: Run, brokered: Broker, rows: int) -> None:
    """Prints the speed of the last of four micro-batches, plain and with deduplication."""
    brokered.create("many", partitions=2)
    text = "a storm and no more than that"
    records = [{"lon": i % 180, "lat": i % 90, "text": f"{text} {i}"} for i in range(rows)]
    brokered.produce("many", [json.dumps(row).encode() for row in records])
    declared = declare_kafka(brokered, "many", maxOffsetsPerTrigger=max(rows // 4, 1))
    for name, more in (("many", {}), ("dedupe", {"posts": {"dedupe": "1h"}})):
        found = run(merge_declarations(declared, {"name": name, **more}))
        click.echo(f"{name}: {found['done']} published, the last at {found['read_rate']}/s")


if __name__ == "__main__":
    main()
