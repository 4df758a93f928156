"""A place for the data of a benchmark, which is removed afterwards."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.store.places import StoragePlace, place


@contextlib.contextmanager
def open_fresh_place(directory: str | None, database_url: str | None) -> Iterator[StoragePlace]:
    """Yields a new directory below `directory` (the system's for temporary files if None), or a
    new schema of the database."""
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
