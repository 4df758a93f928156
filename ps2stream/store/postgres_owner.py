"""One owner at a time of a ledger or a log in PostgreSQL, and its connection.

An advisory lock keeps a second owner out. An owner that takes over ends the session of the one
before and raises the epoch, on which every write is conditional: what an earlier owner still
sends is refused. A connection that is found dead is replaced before the next write; one that
dies during a write leaves the outcome unknown, which ends the owner.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable

import psycopg

from ps2stream.errors import DataDirectoryError, StoreFailed, Unavailable
from ps2stream.store.postgres_session import (
    WAIT_S,
    Connection,
    PostgresDatabase,
    PostgresSession,
    Statement,
    confirm_commits,
    describe_error,
    fetch_value,
    is_alive,
)

POLL_S = 0.05
FULL = "53"  # class of SQLSTATE: no disk, no memory, no connection
READ_ONLY = "25006"
PASSING = {READ_ONLY, "40001", "40P01", "55P03", "57014"}  # conflicts, time-outs
_HOLDER = """
SELECT pid, application_name, client_addr FROM pg_stat_activity JOIN pg_locks USING (pid)
WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND (classid::bigint << 32 | objid::bigint)
    = %s AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class PostgresOwner(PostgresSession):
    """The owner of the ledger, or of the log `name`, in a database; one thread at a time."""

    def __init__(
        self,
        database: PostgresDatabase,
        name: str,
        *,
        take_over: bool = False,
        wait_s: float | None = None,
    ) -> None:
        """Waits `wait_s` (WAIT_S) for another owner to go, whose host may have died; with
        `take_over` ends its session at once. Raises DataDirectoryError when it stays, or where
        there was none to take over from, Unavailable when the database cannot be reached."""
        super().__init__(database, name)
        self._failed = ""
        try:
            if take_over:
                self._check_made()
            database.create_tables(self._db)
            wait_s = WAIT_S if wait_s is None else wait_s
            self._acquire_lock(self._db, wait_s, ends=-1 if take_over else 0)
            with confirm_commits(self._db, WAIT_S):
                self.epoch = self._raise_epoch()
        except psycopg.Error as error:
            self._db.close()
            raise Unavailable(f"{self} cannot be opened: {describe_error(error)}") from error
        except BaseException:
            self._db.close()
            raise
        self._pid = self._db.info.backend_pid

    def close(self) -> None:
        self._failed = self._failed or "it is closed"
        super().close()

    @property
    def failure(self) -> str:
        """Why nothing is written any more; empty if that is not so."""
        return self._failed and f"{self} accepts no writes until a restart: {self._failed}"

    @property
    def is_connected(self) -> bool:
        """Whether the server keeps the session, by what it has sent last."""
        return is_alive(self._db)

    # --- writing -------------------------------------------------------------------

    def write(self, statements: Iterable[Statement]) -> None:
        """Does all of this durably, or nothing, in one round trip, if this is still the owner.

        Raises Unavailable when nothing was done and a later call may succeed (no connection,
        a full disk), else StoreFailed, for good.
        """
        if self._failed:
            raise StoreFailed(self.failure)
        db = self._ensure_alive()
        try:
            with confirm_commits(db), db.pipeline():
                db.execute("BEGIN")
                db.execute("SELECT owned(%s, %s)", [self.name, self.epoch])
                for query, values in statements:
                    db.execute(query, values)
                done = db.execute("COMMIT")
            if done.statusmessage != "COMMIT":
                raise psycopg.DatabaseError(f"the answer to COMMIT was {done.statusmessage}")
        except psycopg.Error as error:
            raise self._handle_refusal(db, error) from error
        except BaseException as error:
            self._failed = str(error) or type(error).__name__
            db.close()
            raise

    def _handle_refusal(self, db: Connection, error: psycopg.Error) -> Unavailable:
        what = f"{self} cannot be written: {describe_error(error)}"
        state = error.sqlstate or ""
        if db.closed or not (state.startswith(FULL) or state in PASSING):
            self._failed = describe_error(error)
            db.close()
            return StoreFailed(what)
        # The server has reported the error, so nothing was done.
        if state == READ_ONLY:
            db.close()  # the server became a standby; the next write looks for the primary
        else:
            with contextlib.suppress(psycopg.Error):
                db.rollback()
        return Unavailable(what)

    # --- owning --------------------------------------------------------------------

    def _ensure_alive(self) -> Connection:
        """Returns the connection; where it has died, a new one, if this is still the owner."""
        if self._failed:
            raise StoreFailed(f"{self}: {self._failed}")
        if is_alive(self._db):
            return self._db
        self._db.close()
        try:
            db = self._reconnect()
        except StoreFailed as error:
            self._failed = str(error)
            raise
        try:
            if fetch_value(db, "SELECT epoch FROM owners WHERE name = %s", self.name) != self.epoch:
                self._failed = "another process has taken it over"
                raise StoreFailed(f"{self}: {self._failed}")
            self._acquire_lock(db, wait_s=2.0, ends=self._pid)
        except (DataDirectoryError, psycopg.Error) as error:
            db.close()
            raise Unavailable(f"{self} cannot be reached: {describe_error(error)}") from error
        except BaseException:
            db.close()
            raise
        self._db, self._pid = db, db.info.backend_pid
        return db

    def _acquire_lock(self, db: Connection, wait_s: float, ends: int = 0) -> None:
        """Acquires the advisory lock. `ends`: the session that may be ended for it; 0: none,
        -1: any."""
        key = self.database.lock_key(self.name)
        give_up = time.monotonic() + wait_s
        while not fetch_value(db, "SELECT pg_try_advisory_lock(%s)", key):
            holder = db.execute(_HOLDER, [key]).fetchone()
            if holder is not None and ends in (-1, holder[0]):
                db.execute("SELECT pg_terminate_backend(%s)", [holder[0]])
            if time.monotonic() > give_up:
                pid, name, host = holder or (0, "?", "?")
                raise DataDirectoryError(
                    f"{self} is in use by {name!r} from {host or 'this host'} (backend {pid}); "
                    "stop it, or use another schema"
                )
            time.sleep(POLL_S)

    def _check_made(self) -> None:
        """Raises DataDirectoryError if nobody has owned this before: it was removed."""
        found = self.has_tables() and fetch_value(
            self._db, "SELECT count(*) FROM owners WHERE name = %s", self.name
        )
        if not found:
            raise DataDirectoryError(
                f"{self} was removed while the service runs; put it back, or restart the service"
            )

    def _raise_epoch(self) -> int:
        """Raises the epoch and returns it. Waits for a write of the earlier owner to end, and until
        the standby has this one, and so all before: what is read next was not seen too early."""
        raised = """
            INSERT INTO owners VALUES (%s, 1, 0)
            ON CONFLICT (name) DO UPDATE SET epoch = owners.epoch + 1 RETURNING epoch
        """
        return int(fetch_value(self._db, raised, self.name))
