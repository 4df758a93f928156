"""Places for a service's durable data: a data directory, or a schema in PostgreSQL."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from ps2stream.extras import name_missing_extra
from ps2stream.protocol.ports import Log, Store
from ps2stream.protocol.tokens import Token
from ps2stream.store import ledger
from ps2stream.store.access import make_private
from ps2stream.store.identity import LogIdentity, read_identity, write_identity
from ps2stream.store.segments import SegmentLog
from ps2stream.store.snapshots import SnapshotStore, forget_beyond
from ps2stream.store.tokens import FileTokenStore

if TYPE_CHECKING:
    from ps2stream.store.postgres_session import PostgresDatabase

SNAPSHOTS = "snapshots"
RESTORED = "restored"
"""Name of a file in a directory that was restored and not used since."""


class TokenKeeper(Protocol):
    """The part of a Store that keeps tokens; a context manager."""

    def tokens(self) -> Sequence[Token]: ...
    def keep_tokens(self, tokens: Sequence[Token], /) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class StoragePlace(Protocol):
    """A place for a ledger, logs and tokens. `str` names it, without secrets. All methods raise
    DataDirectoryError, or Unavailable."""

    @property
    def folder(self) -> Path | None:
        """The folder where the place takes room on this machine, if it does."""
        ...

    def recorded_analysis(self) -> str | None:
        """Returns the text analysis of its ledger (JSON); None without a ledger."""
        ...

    def recorded_plan(self) -> str | None:
        """Returns the plan that objects were last routed by (JSON); None if it never changed."""
        ...

    def pending_plan(self) -> str | None:
        """Returns the plan that waits for the next start (JSON); None or "" without one."""
        ...

    def open_ledger(self, analysis: str, *, again: bool = False) -> Store:
        """Opens the ledger, or makes it. `again`: a part of a running service was replaced; it
        may have left an owner behind, and others follow the log."""
        ...

    def open_log(self, name: str, *, again: bool = False) -> Log:
        """Opens the log of this name, or makes it; `again` as above."""
        ...

    def logs(self) -> Sequence[str]:
        """Returns the names of the logs that have been made."""
        ...

    def log_identity(self, name: str) -> LogIdentity | None:
        """Returns the log's identity (read_identity); None where logs and ledger are one
        database."""
        ...

    def identify_log(self, name: str, identity: LogIdentity) -> None:
        """Gives the log this identity (write_identity)."""
        ...

    @property
    def restored(self) -> bool:
        """True if the place was restored from a backup and no service has used it since."""
        ...

    def forget_restored(self) -> None:
        """Records that a service uses the restored place now."""
        ...

    def open_snapshots(self, name: str) -> SnapshotStore | None:
        """Opens the snapshots of this actor; None where none are kept. Raises OSError."""
        ...

    def open_tokens(self) -> TokenKeeper:
        """Opens the tokens of a service that does not run, or was never started."""
        ...


@dataclasses.dataclass(frozen=True)
class DataDirectory:
    """A data directory; a former owner of a part of it has died, or still holds its locks."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def folder(self) -> Path:
        return self.path

    def recorded_analysis(self) -> str | None:
        return ledger.recorded(self.path, "analysis")

    def recorded_plan(self) -> str | None:
        return ledger.recorded(self.path, "plan")

    def pending_plan(self) -> str | None:
        return ledger.recorded(self.path, "pending_plan")

    def open_ledger(self, analysis: str, *, again: bool = False) -> Store:
        found = ledger.Ledger.open(self.path, analysis, compact=not again)
        if not again:
            forget_beyond(self.path / SNAPSHOTS, found.lsn)
        return found

    def open_log(self, name: str, *, again: bool = False) -> Log:
        return SegmentLog.open(self.path / name)

    def logs(self) -> Sequence[str]:
        return [found.name for found in self.path.glob("*-*") if found.is_dir()]

    def log_identity(self, name: str) -> LogIdentity | None:
        return read_identity(self.path / name)

    def identify_log(self, name: str, identity: LogIdentity) -> None:
        write_identity(self.path / name, identity)

    @property
    def restored(self) -> bool:
        return (self.path / RESTORED).exists()

    def forget_restored(self) -> None:
        (self.path / RESTORED).unlink(missing_ok=True)

    def open_snapshots(self, name: str) -> SnapshotStore | None:
        make_private(self.path / SNAPSHOTS)
        return SnapshotStore(self.path / SNAPSHOTS / name)

    def open_tokens(self) -> TokenKeeper:
        return FileTokenStore(self.path)


@dataclasses.dataclass(frozen=True)
class PostgresSchema:
    """Tables of a PostgreSQL database."""

    database: PostgresDatabase

    def __str__(self) -> str:
        return str(self.database)

    @property
    def folder(self) -> None:
        return None

    def recorded_analysis(self) -> str | None:
        from ps2stream.store.postgres import recorded

        return recorded(self.database, "analysis")

    def recorded_plan(self) -> str | None:
        from ps2stream.store.postgres import recorded

        return recorded(self.database, "plan")

    def pending_plan(self) -> str | None:
        from ps2stream.store.postgres import recorded

        return recorded(self.database, "pending_plan")

    def open_ledger(self, analysis: str, *, again: bool = False) -> Store:
        from ps2stream.store.postgres import PostgresLedger

        return PostgresLedger.open(self.database, analysis, compact=not again, take_over=again)

    def open_log(self, name: str, *, again: bool = False) -> Log:
        from ps2stream.store.postgres_log import PostgresLog

        return PostgresLog.open(self.database, name, take_over=again)

    def logs(self) -> Sequence[str]:
        from ps2stream.store.postgres_log import list_logs

        return list_logs(self.database)

    def log_identity(self, name: str) -> LogIdentity | None:
        return None

    def identify_log(self, name: str, identity: LogIdentity) -> None:
        """Does nothing: whoever restores the database restores all of it."""

    @property
    def restored(self) -> bool:
        return False

    def forget_restored(self) -> None:
        """Does nothing: `restored` is never true."""

    def open_snapshots(self, name: str) -> SnapshotStore | None:
        return None

    def open_tokens(self) -> TokenKeeper:
        from ps2stream.store.postgres_tokens import PostgresTokenStore

        return PostgresTokenStore(self.database)


def place(
    data_dir: Path, database_url: str | None = None, schema: str = "ps2stream"
) -> StoragePlace:
    """Returns the data directory, or the schema in PostgreSQL if there is a URL. Raises
    InvalidArgument when the URL is none, FailedPrecondition when psycopg is not installed."""
    if database_url is None:
        return DataDirectory(data_dir.absolute())
    with name_missing_extra("database_url"):
        from ps2stream.store.postgres_session import PostgresDatabase

    return PostgresSchema(PostgresDatabase(database_url, schema))
