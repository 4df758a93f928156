"""A log in PostgreSQL: one owner, nothing half, damage is told, a full disk waited for."""

from __future__ import annotations

import threading
import time

import pytest

from ps2stream.errors import DataDirectoryError, StoreFailed, Unavailable
from ps2stream.store import postgres_log
from ps2stream.store.postgres_log import PostgresLog
from ps2stream.store.postgres_session import PostgresDatabase, Statement
from tests.postgres.conftest import Sql
from tests.support.postgres_server import Server

NAME = "objects-0"


def fill(log: PostgresLog, *records: bytes) -> list[int]:
    found = [log.append(record) for record in records]
    log.sync()
    return found


def records(log: PostgresLog) -> list[bytes]:
    return [record for _, record in log.scan()]


def test_logs_of_one_schema_do_not_mix(database: PostgresDatabase) -> None:
    with PostgresLog.open(database, NAME) as a, PostgresLog.open(database, "matches-0") as b:
        fill(a, b"a")
        fill(b, b"b", b"bb")
        assert (records(a), records(b)) == ([b"a"], [b"b", b"bb"])


def test_one_owner_at_a_time(database: PostgresDatabase) -> None:
    with PostgresLog.open(database, NAME) as log:
        fill(log, b"x")
        with pytest.raises(DataDirectoryError, match=f"in use by 'ps2stream {NAME}'"):
            PostgresLog.open(database, NAME, wait_s=0.2)
    log.close()
    with pytest.raises(Unavailable, match="closed"):
        log.append(b"")
    with pytest.raises(Unavailable, match="closed"):
        log.sync()
    with pytest.raises(Unavailable, match="closed"):
        log.trim(0)


def test_a_log_that_was_removed_does_not_begin_anew(
    database: PostgresDatabase, execute: Sql
) -> None:
    with PostgresLog.open(database, NAME) as log:
        fill(log, b"a")
    execute("DELETE FROM owners")
    for _ in range(2):
        with pytest.raises(DataDirectoryError, match="was removed while the service runs"):
            PostgresLog.open(database, NAME, take_over=True)
    database.drop()
    for _ in range(2):
        with pytest.raises(DataDirectoryError, match="was removed while the service runs"):
            PostgresLog.open(database, NAME, take_over=True)


def test_what_a_zombie_appends_is_refused(database: PostgresDatabase, execute: Sql) -> None:
    old = PostgresLog.open(database, NAME)
    fill(old, b"a")
    position = old.append(b"zombie")
    with PostgresLog.open(database, NAME, take_over=True) as new:
        assert new.append(b"b") == position
        new.sync()
        with pytest.raises(StoreFailed, match="taken it over"):
            old.sync()
        with pytest.raises(Unavailable, match="until a restart"):
            old.append(b"")
        assert records(new) == [b"a", b"b"]
        new.append(b"c")
        execute("UPDATE owners SET epoch = epoch + 1")
        with pytest.raises(StoreFailed, match="taken it over"):
            new.sync()
    old.close()
    with PostgresLog.open(database, NAME) as log:
        assert records(log) == [b"a", b"b"]


def test_a_server_that_restarts_meanwhile_is_not_noticed(
    postgres: Server, database: PostgresDatabase
) -> None:
    with PostgresLog.open(database, NAME) as log:
        [at] = fill(log, b"a")
        for stop in (postgres.stop, postgres.crash):
            log.append(b"b")
            stop()
            postgres.start()
            assert log.read(at) == b"a"
            log.sync()
        assert records(log) == [b"a", b"b", b"b"]


def synced(log: PostgresLog, errors: list[BaseException]) -> threading.Thread:
    def sync() -> None:
        try:
            log.sync()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    thread = threading.Thread(target=sync)
    thread.start()
    return thread


def until_it_refuses(log: PostgresLog) -> None:
    while True:
        end = log.end
        try:
            log.append(b"more")
        except Unavailable as error:
            told = str(error)
            break
        time.sleep(0.01)
    assert log.end == end
    assert "until a restart" not in told


def test_a_full_disk_is_waited_for_and_nothing_taken_meanwhile(
    database: PostgresDatabase, execute: Sql
) -> None:
    with PostgresLog.open(database, NAME) as log:
        fill(log, b"a")
        execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION 'refused' USING ERRCODE = '53100'; END $$"
        )
        execute(
            "CREATE TRIGGER refusal BEFORE INSERT ON records FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
        log.append(b"b")
        errors: list[BaseException] = []
        thread = synced(log, errors)
        until_it_refuses(log)
        assert log.read(log.first) == b"a"
        execute("DROP TRIGGER refusal ON records")
        thread.join()
        assert errors == []
        fill(log, b"c")
        found = records(log)
        assert (found[:2], found[-1]) == ([b"a", b"b"], b"c")
        assert set(found[2:-1]) <= {b"more"}
        execute(
            "CREATE TRIGGER refusal BEFORE INSERT ON records FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    with PostgresLog.open(database, NAME, patience_s=0.3) as log:
        assert records(log) == found
        log.append(b"d")
        with pytest.raises(Unavailable, match="refused"):
            log.sync()
        with pytest.raises(Unavailable, match="until a restart"):
            log.append(b"e")


def test_a_sync_waits_for_a_server_that_is_away(
    postgres: Server, database: PostgresDatabase
) -> None:
    with PostgresLog.open(database, NAME) as log:
        fill(log, b"a")
        log.append(b"b")
        postgres.stop()
        errors: list[BaseException] = []
        thread = synced(log, errors)
        until_it_refuses(log)
        with pytest.raises(Unavailable):
            log.read(log.first)
        postgres.start()
        thread.join()
        assert errors == []
        assert records(log)[:2] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("harm", "reads"),
    [
        ("DELETE FROM records WHERE position = 6", 0),
        ("UPDATE owners SET first = 5", 0),
        ("DELETE FROM records", 0),
        ("DELETE FROM records WHERE position = 11", 1),
        ("UPDATE records SET record = '\\x303132333435' WHERE position = 11", 1),
        ("UPDATE records SET record = substr(record, 2) WHERE position = 11", 1),
        ("UPDATE records SET crc32 = 5 WHERE position = 11", 1),
        ("UPDATE records SET position = 12 WHERE position = 11", 1),
    ],
)  # fmt: skip
def test_damage_is_told(harm: str, reads: int, database: PostgresDatabase, execute: Sql) -> None:
    with PostgresLog.open(database, NAME, segment_bytes=1) as log:
        fill(log, b"first")
        at = fill(log, b"0123", b"456789")
        log.trim(at[0])
        at += fill(log, b"abcd", b"efgh")
        assert (log.first, at) == (6, [6, 11, 18, 23])
    execute(harm)
    if not reads:
        with pytest.raises(DataDirectoryError, match="no intact record begins there"):
            PostgresLog.open(database, NAME)
        return
    with PostgresLog.open(database, NAME) as log:
        found = log.scan()
        assert next(found) == (6, b"0123")
        with pytest.raises(DataDirectoryError, match="position 11 is damaged"):
            list(found)
        with pytest.raises(DataDirectoryError, match="position 11 is damaged"):
            log.read(11)
        assert log.read(18) == b"abcd"
        assert list(log.scan(18)) == [(18, b"abcd"), (23, b"efgh")]


def test_a_flipped_bit_in_the_servers_files_is_told(
    postgres: Server, database: PostgresDatabase, execute: Sql
) -> None:
    with PostgresLog.open(database, NAME) as log:
        fill(log, b"before", b"a record that is somewhere on the disk", b"after")
    execute("CHECKPOINT")
    [(path,)] = execute("SELECT pg_relation_filepath('records')")
    postgres.stop()
    file = postgres.data / path
    raw = bytearray(file.read_bytes())
    raw[raw.index(b"somewhere")] ^= 4
    file.write_bytes(raw)
    postgres.start()
    with (
        pytest.raises(DataDirectoryError, match=r"cannot be read|damaged"),
        PostgresLog.open(database, NAME) as log,
    ):
        list(log.scan())


def test_many_and_large_records(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_log, "_SEND", 5000)
    want = [bytes([i % 251]) * (i % 70) for i in range(1000)] + [b"x" * 20_000, b"", b"y" * 9000]
    with PostgresLog.open(database, NAME) as log:
        at = fill(log, *want)
        assert records(log) == want
    monkeypatch.undo()
    with PostgresLog.open(database, NAME) as log:
        assert records(log) == want
        assert [log.read(position) for position in at[::50]] == want[::50]
        monkeypatch.setattr(postgres_log, "MAX_RECORD", 100)
        with pytest.raises(ValueError, match="record: 101 bytes are over the limit of 100"):
            log.append(b"x" * 101)


def test_one_thread_appends_while_another_syncs_and_a_third_reads(
    database: PostgresDatabase,
) -> None:
    want: list[tuple[int, bytes]] = []
    done = threading.Event()
    errors: list[BaseException] = []

    def sync() -> None:
        try:
            while not done.is_set():
                log.sync()
                log.trim(log.end - 20_000)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    def read() -> None:
        try:
            while not done.is_set():
                for position, record in want[-50:]:
                    try:
                        assert log.read(position) == record
                    except KeyError:  # this thread may have waited for long
                        assert position < log.first
                assert all(len(record) == 40 for _, record in log.scan(log.first))
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    with PostgresLog.open(database, NAME, segment_bytes=5000) as log:
        threads = [threading.Thread(target=sync), threading.Thread(target=read)]
        for thread in threads:
            thread.start()
        for i in range(3000):
            record = b"%040d" % i
            want.append((log.append(record), record))
        while log.sync() < log.end or log.first == 0:
            log.append(b"%040d" % 0)
        done.set()
        for thread in threads:
            thread.join()
        assert errors == []
        kept = [r for r in want if r[0] >= log.first]
        assert list(log.scan())[: len(kept)] == kept


def test_what_is_trimmed_while_it_is_read_is_not_called_damaged(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PostgresLog.open(database, NAME, segment_bytes=100) as log:
        at = [log.append(b"%040d" % i) for i in range(10)]
        log.sync()
        log.trim(at[8])
        log.append(b"last")
        write = log._write_statements
        found: list[object] = []

        def write_and_look(statements: list[Statement]) -> None:
            write(statements)  # and the sync has not ended
            with pytest.raises(KeyError):
                log.read(at[0])
            found.extend(position for position, _ in log.scan(at[0]))

        monkeypatch.setattr(log, "_write_statements", write_and_look)
        log.sync()
        assert found[:2] == at[8:10]
        assert log.first == at[8]
