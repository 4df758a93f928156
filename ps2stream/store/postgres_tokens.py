"""The tokens in PostgreSQL: one row, replaced whole."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import LiteralString, Self

from ps2stream.errors import DataDirectoryError
from ps2stream.protocol import tokens
from ps2stream.protocol.tokens import Token
from ps2stream.store.postgres_owner import PostgresOwner
from ps2stream.store.postgres_session import PostgresDatabase

LEDGER = "ledger"
TOKENS = "tokens"
PUT: LiteralString = (
    "INSERT INTO documents VALUES (%s, %s, %b) ON CONFLICT (name) DO UPDATE "
    "SET crc32 = excluded.crc32, blob = excluded.blob"
)


class PostgresTokens:
    """The part of a Store that keeps tokens in PostgreSQL, for the owner of a ledger."""

    _owner: PostgresOwner

    def tokens(self) -> Sequence[Token]:
        query = "SELECT crc32, blob FROM documents WHERE name = $1"
        for crc, blob in self._owner.select(query, TOKENS):
            if zlib.crc32(blob) != crc:
                raise DataDirectoryError(f"{self._owner}: the tokens are damaged; restore a copy")
            return tokens.decode(blob)
        return ()

    def keep_tokens(self, held: Sequence[Token]) -> None:
        blob = tokens.encode(held)
        self._owner.write([(PUT, (TOKENS, zlib.crc32(blob), blob))])


class PostgresTokenStore(PostgresTokens):
    """The tokens of a database that no service uses, whose ledger it owns. A context manager."""

    def __init__(self, database: PostgresDatabase) -> None:
        """Makes the tables if need be. Raises DataDirectoryError, also when a service runs on
        it, and Unavailable."""
        self._owner = PostgresOwner(database, LEDGER, wait_s=2.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._owner.close()
