"""Databases of one server, each with tables of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from ps2stream.store.postgres_session import PostgresDatabase
from tests.support.postgres_server import Server

_names = itertools.count(1)
Sql = Callable[[str], list[tuple[Any, ...]]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/tests/postgres/" in item.path.as_posix():
            item.add_marker(pytest.mark.postgres)


@pytest.fixture
def database(postgres: Server) -> PostgresDatabase:
    return PostgresDatabase(postgres.url, f"tests_{next(_names)}")


@pytest.fixture
def execute(database: PostgresDatabase) -> Iterator[Sql]:
    """SQL by somebody else, in the schema of `database`."""
    with psycopg.connect(database.url, autocommit=True) as db:

        def run(query: str) -> list[tuple[Any, ...]]:
            db.execute(f"SET search_path TO {database.schema}".encode())
            found = db.execute(query.encode())
            return found.fetchall() if found.description else []

        yield run
