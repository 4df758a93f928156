"""Sessions with PostgreSQL: opening one, reading from it, and replacing a dead one."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import select
import threading
import zlib
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, LiteralString

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ps2stream.errors import DataDirectoryError, StoreFailed, Unavailable, invalid
from ps2stream.store.postgres_schema import DDL, FORMAT
from ps2stream.store.tables import Row

Connection = psycopg.Connection[Row]
Statement = tuple[LiteralString, Sequence[Any]]

WAIT_S = 15.0  # for an owner whose host may have died, and for a standby at the start
PREPARED = "SELECT to_regclass(quote_ident(%s) || '.meta') IS NOT NULL"
# A dead peer is noticed on both sides within about this time.
_LINK: dict[str, str | int] = {
    "target_session_attrs": "primary",  # of several hosts, and never a standby
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_SESSION = """
SELECT set_config('search_path', %s, false),
    set_config('client_min_messages', 'warning', false),
    set_config('idle_in_transaction_session_timeout', '5s', false),
    set_config('tcp_keepalives_idle', '5', false),
    set_config('tcp_keepalives_interval', '2', false),
    set_config('tcp_keepalives_count', '3', false),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false),
    current_setting('fsync')
"""
_WAITS = "syncrep.c"  # of the server: the module that waits for standbys
_TIMELINE = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)"


@dataclasses.dataclass(frozen=True)
class PostgresDatabase:
    """A PostgreSQL URL, and the name of the schema that holds the tables."""

    url: str
    schema: str = "ps2stream"

    def __post_init__(self) -> None:
        """Checks the URL. Raises InvalidArgument."""
        try:
            conninfo_to_dict(self.url)
        except psycopg.Error:  # whose text may hold the password
            problem = "is not of the form postgresql://user@host:port/database"
            raise invalid("database_url", problem) from None

    def __str__(self) -> str:
        """Returns the URL without its password, and the schema."""
        parts = conninfo_to_dict(self.url)
        user, name = parts.get("user", ""), parts.get("dbname", "")
        hosts, ports = (str(parts.get(key, "")).split(",") for key in ("host", "port"))
        ports = ports * len(hosts) if len(ports) == 1 else ports
        pairs = zip_longest(hosts, ports, fillvalue="")
        where = ",".join(f"{host}{':' if port else ''}{port}" for host, port in pairs)
        return f"postgresql://{user}{'@' if user else ''}{where}/{name}, schema {self.schema}"

    __repr__ = __str__  # also in a traceback

    def connect(self, name: str) -> Connection:
        """Opens a session in autocommit. Raises Unavailable, DataDirectoryError."""
        link = _LINK | {"application_name": f"ps2stream {name}"}
        link = {k: v for k, v in link.items() if k not in conninfo_to_dict(self.url)}
        try:
            db: Connection = psycopg.connect(make_conninfo(self.url, **link), autocommit=True)
            with _close_on_error(db):
                found = db.execute(_SESSION, [self.schema]).fetchone()
        except psycopg.Error as error:
            raise Unavailable(f"{self} cannot be reached: {describe_error(error)}") from None
        assert found is not None
        if found[-1] != "on":
            db.close()
            raise DataDirectoryError(
                f"{self}: the server runs with fsync = off, so a crash would lose data; set fsync "
                "to on"
            )
        return db

    def has_synchronous_standby(self) -> bool:
        """Returns whether commits wait for a standby. Raises Unavailable, DataDirectoryError."""
        with contextlib.closing(self.connect("standby")) as db:
            return bool(fetch_value(db, "SELECT current_setting('synchronous_standby_names')"))

    def create_tables(self, db: Connection) -> None:
        """Makes the tables unless they are there. Raises DataDirectoryError."""
        try:
            if fetch_value(db, PREPARED, self.schema):
                return
            with confirm_commits(db, WAIT_S), db.transaction():
                db.execute("SELECT pg_advisory_xact_lock(%s)", [self.lock_key("")])
                if fetch_value(db, PREPARED, self.schema):
                    return
                name = sql.Identifier(self.schema)
                db.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
                crc = zlib.crc32(str(FORMAT).encode())
                db.execute(DDL.replace("$CRC", str(crc)).encode())
        except psycopg.Error as error:
            raise DataDirectoryError(
                f"{self}: the tables cannot be created: {describe_error(error)}"
            ) from error

    def drop(self) -> None:
        """Removes the schema and all in it. Raises Unavailable."""
        db = self.connect("drop")
        try:
            db.execute(
                sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(self.schema))
            )
        except psycopg.Error as error:
            raise Unavailable(f"{self} cannot be removed: {describe_error(error)}") from error
        finally:
            db.close()

    def lock_key(self, name: str) -> int:
        """Returns the key of an advisory lock: 64 bits."""
        raw = hashlib.sha256(f"ps2stream\0{self.schema}\0{name}".encode()).digest()
        return int.from_bytes(raw[:8], "big", signed=True)


class PostgresSession:
    """A session for reading; one thread at a time. One that has died is replaced."""

    def __init__(self, database: PostgresDatabase, name: str) -> None:
        """Opens the session; `name` says what it is for. Raises Unavailable, DataDirectoryError."""
        self.database = database
        self.name = name
        self._db = database.connect(name)
        with _close_on_error(self._db):
            self.timeline = read_timeline(self._db)
        """The history that the server writes: each promotion of a standby begins another one."""

    def __str__(self) -> str:
        return f"{self.database}, {self.name}"

    def close(self) -> None:
        """Closes the session; idempotent."""
        self._db.close()

    def has_tables(self) -> bool:
        """Returns whether the tables are there. Raises Unavailable."""
        try:
            return bool(fetch_value(self._ensure_alive(), PREPARED, self.database.schema))
        except psycopg.Error as error:
            raise Unavailable(f"{self} cannot be read: {describe_error(error)}") from error

    def select(self, query: str, *values: Any) -> list[Row]:
        """Returns all rows. Raises DataDirectoryError when they cannot be read, Unavailable when
        the database cannot be reached."""
        for again in (False, True):
            db = self._ensure_alive()
            try:
                with psycopg.RawCursor(db) as cursor:
                    return list(cursor.execute(query.encode(), values, binary=True))
            except psycopg.Error as error:
                if not db.closed:
                    raise DataDirectoryError(
                        f"{self} cannot be read: {describe_error(error)}"
                    ) from error
                if again:
                    raise Unavailable(f"{self} cannot be read: {describe_error(error)}") from error
        raise AssertionError

    def _ensure_alive(self) -> Connection:
        if not is_alive(self._db):
            self._db.close()
            self._db = self._reconnect()
        return self._db

    def _reconnect(self) -> Connection:
        """Returns another connection with the history that this session began with. Raises
        StoreFailed for another one, which may lack what was read or written here."""
        db = self.database.connect(self.name)
        with _close_on_error(db):
            if (found := read_timeline(db)) != self.timeline:
                raise StoreFailed(
                    f"{self}: another server has become the primary (timeline {found} instead of "
                    f"{self.timeline})"
                )
        return db


@contextlib.contextmanager
def _close_on_error(db: Connection) -> Iterator[None]:
    """Closes the connection if the block fails."""
    try:
        yield
    except BaseException:
        db.close()
        raise


def describe_error(error: BaseException) -> str:
    """Returns what went wrong, in one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def read_timeline(db: Connection) -> int:
    """Returns the number of the server's timeline; 0 where a service like PostgreSQL has none.
    Raises Unavailable, with the session closed."""
    try:
        return int(fetch_value(db, _TIMELINE), 16)
    except (errors.FeatureNotSupported, errors.UndefinedFunction, errors.InsufficientPrivilege):
        return 0
    except psycopg.Error as error:
        db.close()
        raise Unavailable(f"the timeline cannot be read: {describe_error(error)}") from error


@contextlib.contextmanager
def confirm_commits(db: Connection, wait_s: float = 0.0) -> Iterator[None]:
    """Raises OperationalError where the server warns that a commit may be missing on its
    synchronous standby: it was told not to wait for it, and answered as if it had. `wait_s`, if it
    is not 0, is how long the server may wait."""
    warnings: list[str] = []

    def note(notice: psycopg.errors.Diagnostic) -> None:
        if notice.source_file == _WAITS:  # the text is in the server's language
            warnings.append(notice.message_primary or "")

    cancelling = threading.Timer(wait_s, db.cancel)
    cancelling.daemon = True
    db.add_notice_handler(note)
    try:
        if wait_s:
            cancelling.start()
        yield
    finally:
        cancelling.cancel()
        db.remove_notice_handler(note)
    if warnings:
        raise psycopg.OperationalError(
            f"no standby has confirmed it (synchronous_standby_names): {warnings[0]}"
        )


def is_alive(db: Connection) -> bool:
    """Returns whether the server keeps the session; reads what it has sent last."""
    poll = select.poll()
    while not db.closed:
        poll.register(db.fileno(), select.POLLIN)
        if not poll.poll(0):
            return True
        with contextlib.suppress(psycopg.Error):
            db.pgconn.consume_input()
    return False


def fetch_value(db: Connection, query: LiteralString, *values: Any) -> Any:
    row = db.execute(query, values).fetchone()
    return row[0] if row else None
