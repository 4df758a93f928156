"""Places for a service's durable data: a data directory, or a schema in PostgreSQL; and topics of
Kafka for the logs, beside either."""

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
    from ps2stream.store.kafka_cluster import KafkaCluster
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

    @property
    def identifies_logs(self) -> bool:
        """True where logs are stored apart from the ledger, so that they have identities."""
        ...

    @property
    def caveat(self) -> str:
        """What the place does not promise; empty for one that keeps what it acknowledges."""
        ...

    def find_single_copy(self) -> str:
        """Returns which data is on one disk only, and why, so that its loss would lose what is
        acknowledged as durable; empty if none is. Asks the servers."""
        ...

    def recorded_analysis(self) -> str | None:
        """Returns the text analysis of its ledger (JSON); None without a ledger."""
        ...

    def recorded_plan(self) -> str | None:
        """Returns the plan that objects were last routed by (JSON); None if it never changed."""
        ...

    def recorded_mergers(self) -> str | None:
        """Returns how many mergers ran last; None if no service of this version ever ran."""
        ...

    def recorded_dispatchers(self) -> str | None:
        """Returns how many dispatchers there are since their number was last changed; see
        ProducerMap.summary. None if it has only been set so far."""
        ...

    def pending_plan(self) -> str | None:
        """Returns the plan that waits for the next start (JSON); None or "" without one."""
        ...

    def open_ledger(self, analysis: str, *, again: bool = False) -> Store:
        """Opens the ledger, or makes it. `again`: a part of a running service was replaced; it
        may have left an owner behind, others follow the log, and one that is gone is not made."""
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

    def identify_log(self, name: str, identity: LogIdentity, log: Log) -> None:
        """Gives the log, which is open, this identity (write_identity); durable at the latest when
        the log is synced."""
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

    @property
    def identifies_logs(self) -> bool:
        return True

    @property
    def caveat(self) -> str:
        return ""

    def find_single_copy(self) -> str:
        return f"a data directory, {self.path}, is on one disk"

    def recorded_analysis(self) -> str | None:
        return ledger.recorded(self.path, "analysis")

    def recorded_plan(self) -> str | None:
        return ledger.recorded(self.path, "plan")

    def recorded_mergers(self) -> str | None:
        return ledger.recorded(self.path, "mergers")

    def recorded_dispatchers(self) -> str | None:
        return ledger.recorded(self.path, "dispatchers")

    def pending_plan(self) -> str | None:
        return ledger.recorded(self.path, "pending_plan")

    def open_ledger(self, analysis: str, *, again: bool = False) -> Store:
        found = ledger.Ledger.open(self.path, analysis, compact=not again, again=again)
        if not again:
            forget_beyond(self.path / SNAPSHOTS, found.lsn)
        return found

    def open_log(self, name: str, *, again: bool = False) -> Log:
        return SegmentLog.open(self.path / name, again=again)

    def logs(self) -> Sequence[str]:
        return [found.name for found in self.path.glob("*-*") if found.is_dir()]

    def log_identity(self, name: str) -> LogIdentity | None:
        return read_identity(self.path / name)

    def identify_log(self, name: str, identity: LogIdentity, log: Log) -> None:
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
    is_replicated: bool = False
    """Whether the database is replicated by means that it does not show."""

    def __str__(self) -> str:
        return str(self.database)

    @property
    def folder(self) -> None:
        return None

    @property
    def identifies_logs(self) -> bool:
        return False

    @property
    def caveat(self) -> str:
        return ""

    def find_single_copy(self) -> str:
        if self.is_replicated or self.database.has_synchronous_standby():
            return ""
        return "the database has no synchronous standby (synchronous_standby_names is empty)"

    def recorded_analysis(self) -> str | None:
        from ps2stream.store.postgres import recorded

        return recorded(self.database, "analysis")

    def recorded_plan(self) -> str | None:
        from ps2stream.store.postgres import recorded

        return recorded(self.database, "plan")

    def recorded_mergers(self) -> str | None:
        from ps2stream.store.postgres import recorded

        return recorded(self.database, "mergers")

    def recorded_dispatchers(self) -> str | None:
        from ps2stream.store.postgres import recorded

        return recorded(self.database, "dispatchers")

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

    def identify_log(self, name: str, identity: LogIdentity, log: Log) -> None:
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


@dataclasses.dataclass(frozen=True)
class KafkaTopics:
    """Topics of a Kafka cluster for the logs; `ledger` is the place of everything else."""

    ledger: StoragePlace
    cluster: KafkaCluster

    def __str__(self) -> str:
        return f"{self.ledger}, logs in {self.cluster}"

    @property
    def folder(self) -> Path | None:
        return self.ledger.folder

    @property
    def identifies_logs(self) -> bool:
        return True

    @property
    def caveat(self) -> str:
        return self.cluster.caveat

    def find_single_copy(self) -> str:
        found = [self.ledger.find_single_copy(), self.cluster.caveat]
        return "; ".join(filter(None, found))

    def recorded_analysis(self) -> str | None:
        return self.ledger.recorded_analysis()

    def recorded_plan(self) -> str | None:
        return self.ledger.recorded_plan()

    def recorded_mergers(self) -> str | None:
        return self.ledger.recorded_mergers()

    def recorded_dispatchers(self) -> str | None:
        return self.ledger.recorded_dispatchers()

    def pending_plan(self) -> str | None:
        return self.ledger.pending_plan()

    def open_ledger(self, analysis: str, *, again: bool = False) -> Store:
        return self.ledger.open_ledger(analysis, again=again)

    def open_log(self, name: str, *, again: bool = False) -> Log:
        from ps2stream.store.kafka_log import KafkaLog

        return KafkaLog.open(self.cluster, name, again=again)

    def logs(self) -> Sequence[str]:
        from ps2stream.store.kafka_cluster import KafkaAdmin

        return KafkaAdmin(self.cluster).list_logs()

    def log_identity(self, name: str) -> LogIdentity | None:
        from ps2stream.store.kafka_log import look_at_end

        return look_at_end(self.cluster, name)[1]

    def identify_log(self, name: str, identity: LogIdentity, log: Log) -> None:
        from ps2stream.store.kafka_log import KafkaLog

        assert isinstance(log, KafkaLog)
        log.identify(identity)

    @property
    def restored(self) -> bool:
        return self.ledger.restored

    def forget_restored(self) -> None:
        self.ledger.forget_restored()

    def open_snapshots(self, name: str) -> SnapshotStore | None:
        return self.ledger.open_snapshots(name)

    def open_tokens(self) -> TokenKeeper:
        return self.ledger.open_tokens()


def describe_promises(place: StoragePlace) -> dict[str, str]:
    """Returns what the status of a service says of its place. Raises DataDirectoryError,
    Unavailable."""
    return {"caveat": place.caveat, "single_copy": place.find_single_copy()}


def place(
    data_dir: Path,
    database_url: str | None = None,
    schema: str = "ps2stream",
    log_url: str | None = None,
    log_config: Path | None = None,
    *,
    is_database_replicated: bool = False,
    are_transactions_replicated: bool = False,
) -> StoragePlace:
    """Returns the data directory, or the schema in PostgreSQL if there is a URL; with `log_url`,
    topics of Kafka for the logs, which are reached by the properties in `log_config`. The last two
    are what an operator says of servers that do not show it. Raises InvalidArgument when a URL is
    none, FailedPrecondition when psycopg or confluent-kafka is not installed."""
    found: StoragePlace = DataDirectory(data_dir.absolute())
    if database_url is not None:
        with name_missing_extra("database_url"):
            from ps2stream.store.postgres_session import PostgresDatabase

        database = PostgresDatabase(database_url, schema)
        found = PostgresSchema(database, is_database_replicated)
    if log_url is None:
        return found
    with name_missing_extra("log_url"):
        from ps2stream.store.kafka_cluster import KafkaCluster

    return KafkaTopics(found, KafkaCluster.parse(log_url, log_config, are_transactions_replicated))
