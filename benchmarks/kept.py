"""A place for the data of a benchmark, which is removed afterwards."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
from collections.abc import Iterator
from pathlib import Path

from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.store.places import KafkaTopics, StoragePlace, place


@contextlib.contextmanager
def open_fresh_place(
    directory: str | None,
    database_url: str | None,
    log_url: str | None = None,
    log_config: str | None = None,
) -> Iterator[StoragePlace]:
    """Yields a new directory below `directory` (the system's for temporary files if None), a new
    schema of the database, or a directory with new topics of the Kafka cluster for the logs."""
    if log_url is not None:
        with _open_fresh_topics(directory, log_url, log_config) as topics:
            yield topics
        return
    if database_url is None:
        with PrivateFolder(None if directory is None else Path(directory)) as folder:
            yield place(folder.path)
        return
    schema = f"ps2stream_bench_{secrets.token_hex(4)}"
    found = place(Path(), database_url, schema)
    try:
        yield found
    finally:
        from ps2stream.store.postgres_session import PostgresDatabase

        PostgresDatabase(database_url, schema).drop()


@contextlib.contextmanager
def _open_fresh_topics(
    directory: str | None, log_url: str, log_config: str | None
) -> Iterator[StoragePlace]:
    with PrivateFolder(None if directory is None else Path(directory)) as folder:
        config = None if log_config is None else Path(log_config)
        found = place(folder.path, log_url=log_url, log_config=config)
        assert isinstance(found, KafkaTopics)
        address = found.cluster.address
        address = address._replace(prefix=f"{address.prefix}-bench-{secrets.token_hex(4)}")
        fresh = dataclasses.replace(
            found, cluster=dataclasses.replace(found.cluster, address=address)
        )
        try:
            yield fresh
        finally:
            from ps2stream.store.kafka_cluster import KafkaAdmin

            admin = KafkaAdmin(fresh.cluster)
            if names := admin.list_logs():
                admin.delete_topics(names)
