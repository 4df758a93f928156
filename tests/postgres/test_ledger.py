"""The ledger in PostgreSQL: one owner, nothing half, damage and doubt are told."""

from __future__ import annotations

import dataclasses
import zlib

import numpy as np
import psycopg
import pytest

from ps2stream.errors import DataDirectoryError, StoreFailed, Unavailable
from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.ports import LedgerChange
from ps2stream.protocol.rows import QueryRows
from ps2stream.store import compaction
from ps2stream.store import postgres as ledgers
from ps2stream.store.postgres import PostgresLedger, recorded
from ps2stream.store.postgres_session import PostgresDatabase
from tests.postgres.conftest import Sql
from tests.support.ledgers import ANALYSIS, fill, rows_of
from tests.support.postgres_server import Server
from tests.support.updates import applied, delete, ids_of, insert, packed, query_rows


def change(lsn: int) -> LedgerChange:
    return LedgerChange(applied([insert(f"q{lsn}")], lsn))


def lsns(store: PostgresLedger) -> list[int]:
    return [batch.lsn_to for batch in store.replay()]


# --- owners --------------------------------------------------------------------------


def test_one_owner_at_a_time(database: PostgresDatabase) -> None:
    with PostgresLedger.open(database, ANALYSIS) as store:
        fill(store)
        with pytest.raises(DataDirectoryError, match="in use by 'ps2stream ledger' from this host"):
            PostgresLedger.open(database, ANALYSIS, wait_s=0.2)
        store.commit(change(5))
    store.close()
    with pytest.raises(StoreFailed, match="closed"):
        store.commit(change(6))
    with PostgresLedger.open(database, ANALYSIS) as store:
        assert lsns(store) == [2, 3, 4, 5]


def test_who_takes_over_ends_the_owner_before(database: PostgresDatabase) -> None:
    old = PostgresLedger.open(database, ANALYSIS)
    fill(old)
    with PostgresLedger.open(database, ANALYSIS, take_over=True) as new:
        for _ in range(2):
            with pytest.raises(StoreFailed, match="another process has taken it over"):
                old.commit(change(5))
        with pytest.raises(StoreFailed):
            old.epoch("worker", 1)
        new.commit(change(5))
        assert new.epoch("worker", 1) == 2
        assert lsns(new) == [2, 3, 4, 5]
    old.close()


def test_a_zombie_whose_session_lives_is_refused(database: PostgresDatabase, execute: Sql) -> None:
    with PostgresLedger.open(database, ANALYSIS) as store:
        fill(store)
        execute("UPDATE owners SET epoch = epoch + 1")  # as who takes over does
        with pytest.raises(StoreFailed, match="another process has taken it over"):
            store.commit(change(5))
        assert execute("SELECT max(lsn_to) FROM log") == [(4,)]


def test_a_write_that_was_under_way_does_not_count(database: PostgresDatabase) -> None:
    """The zombie stopped within its transaction: it holds a lock on its epoch."""
    old = PostgresLedger.open(database, ANALYSIS)
    fill(old)
    db = old._owner._db
    db.execute("BEGIN")
    db.execute("SELECT owned(%s, %s)", ["ledger", old._owner.epoch])
    db.execute("INSERT INTO log VALUES (5, 5, 0, '')")
    with PostgresLedger.open(database, ANALYSIS, take_over=True) as new:
        with pytest.raises(psycopg.OperationalError):
            db.execute("COMMIT")
        assert lsns(new) == [2, 3, 4]
        new.commit(change(5))
    old.close()


# --- the server goes -----------------------------------------------------------------


def test_a_server_that_restarts_meanwhile_is_not_noticed(
    postgres: Server, database: PostgresDatabase
) -> None:
    with PostgresLedger.open(database, ANALYSIS) as store:
        fill(store)
        for lsn, stop in ((5, postgres.stop), (6, postgres.crash)):
            stop()
            postgres.start()
            store.commit(change(lsn))
            stop()
            postgres.start()
            assert lsns(store)[-1] == lsn
        assert store.epoch("worker", 1) == 2


def test_without_a_server_updates_are_refused_and_then_taken(
    postgres: Server, database: PostgresDatabase
) -> None:
    with PostgresLedger.open(database, ANALYSIS) as store:
        fill(store)
        postgres.stop()
        try:
            for _ in range(2):
                with pytest.raises(Unavailable, match="cannot be reached") as refused:
                    store.commit(change(5))
                assert not isinstance(refused.value, StoreFailed)
            with pytest.raises(Unavailable):
                list(store.replay())
            with pytest.raises(Unavailable, match="cannot be reached"):
                PostgresLedger.open(database, ANALYSIS)
        finally:
            postgres.start()
        store.commit(change(5))
        assert lsns(store) == [2, 3, 4, 5]


def test_a_server_that_is_away_is_noticed_without_an_update_and_tried_again(
    postgres: Server, database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledgers, "TRY_S", 0.0)
    with PostgresLedger.open(database, ANALYSIS) as store:
        fill(store)
        assert store.find_problem() == ""
        postgres.stop()
        try:
            assert "cannot be reached" in store.find_problem()
        finally:
            postgres.start()
        monkeypatch.setattr(ledgers, "TRY_S", 60.0)
        assert "cannot be reached" in store.find_problem()  # it was tried just now
        monkeypatch.setattr(ledgers, "TRY_S", 0.0)
        assert store.find_problem() == ""
        assert lsns(store) == [2, 3, 4]


def test_an_owner_that_was_replaced_while_it_was_away(
    postgres: Server, database: PostgresDatabase
) -> None:
    away = PostgresLedger.open(database, ANALYSIS)
    fill(away)
    postgres.stop()
    postgres.start()
    PostgresLedger.open(database, ANALYSIS).close()
    with pytest.raises(StoreFailed, match="another process has taken it over"):
        away.commit(change(5))
    away.close()


# --- what the server refuses -----------------------------------------------------------


def refuse(execute: Sql, state: str, when: str = "") -> None:
    """As if the server met this error at each insert into the log."""
    execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"RAISE EXCEPTION 'refused' USING ERRCODE = '{state}'; END $$"
    )
    kind = "CONSTRAINT TRIGGER refusal AFTER" if when else "TRIGGER refusal BEFORE"
    execute(f"CREATE {kind} INSERT ON log {when} FOR EACH ROW EXECUTE FUNCTION refuse()")


@pytest.mark.parametrize("state", ["53100", "53200", "40001", "57014"])
@pytest.mark.parametrize("when", ["", "DEFERRABLE INITIALLY DEFERRED"])  # deferred: at COMMIT
def test_a_full_disk_refuses_updates_and_recovers(
    state: str, when: str, database: PostgresDatabase, execute: Sql
) -> None:
    with PostgresLedger.open(database, ANALYSIS) as store:
        fill(store)
        refuse(execute, state, when)
        new = dataclasses.replace(change(5), sessions=[(9, b"new")], watermark=3)
        for _ in range(2):
            with pytest.raises(Unavailable, match="refused") as refused:
                store.commit(new)
            assert not isinstance(refused.value, StoreFailed)
            assert store._refusal.problem == str(refused.value)
        assert lsns(store) == [2, 3, 4]
        assert 9 not in dict(store.sessions())
        assert store.watermark == 0
        execute("DROP TRIGGER refusal ON log")
        store.commit(new)
        assert lsns(store) == [2, 3, 4, 5]
        assert store.watermark == 3
        assert store.find_problem() == ""


def test_any_other_error_ends_the_owner(database: PostgresDatabase, execute: Sql) -> None:
    with PostgresLedger.open(database, ANALYSIS) as store:
        fill(store)
        refuse(execute, "58030")  # io_error
        with pytest.raises(StoreFailed, match="refused"):
            store.commit(change(5))
        execute("DROP TRIGGER refusal ON log")
        with pytest.raises(StoreFailed, match="until a restart"):
            store.commit(change(5))
    with PostgresLedger.open(database, ANALYSIS) as store:
        store.commit(change(5))


def test_a_server_that_may_not_be_written_is_left(database: PostgresDatabase, execute: Sql) -> None:
    with PostgresLedger.open(database, ANALYSIS) as store:
        fill(store)
        execute("ALTER ROLE CURRENT_USER SET default_transaction_read_only = on")
        try:
            store._owner._db.execute("SET default_transaction_read_only = on")
            for _ in range(2):
                with pytest.raises(Unavailable, match="read-only") as refused:
                    store.commit(change(5))
                assert not isinstance(refused.value, StoreFailed)
        finally:
            writable = "-c default_transaction_read_only=off"
            with psycopg.connect(database.url, options=writable) as db:
                db.execute("ALTER ROLE CURRENT_USER RESET default_transaction_read_only")
        store.commit(change(5))
        assert lsns(store) == [2, 3, 4, 5]


def test_an_error_that_is_not_the_servers_leaves_no_half_commit(database: PostgresDatabase) -> None:
    with PostgresLedger.open(database, ANALYSIS) as store:
        fill(store)
        with pytest.raises(StoreFailed):
            store._owner.write([
                ("INSERT INTO sessions VALUES (%s, %b, %s)", (8, b"x", 0)),
                ("INSERT INTO sessions VALUES (%s, %b, %s)", (9, object(), 0)),
            ])  # fmt: skip
    with PostgresLedger.open(database, ANALYSIS) as store:
        assert set(dict(store.sessions())) == {1, 7}


# --- settings --------------------------------------------------------------------------


def test_a_server_that_keeps_nothing_is_refused(
    postgres: Server, database: PostgresDatabase
) -> None:
    postgres.stop()
    postgres.start(fsync="off")
    try:
        with pytest.raises(DataDirectoryError, match="fsync = off, so a crash would lose data"):
            PostgresLedger.open(database, ANALYSIS)
    finally:
        postgres.stop()
        postgres.start()
    PostgresLedger.open(database, ANALYSIS).close()


def test_every_commit_is_synced(database: PostgresDatabase, execute: Sql) -> None:
    for found, want in (("off", "on"), ("local", "on"), ("on", "on"), ("remote_apply",) * 2):
        execute(f"ALTER ROLE CURRENT_USER SET synchronous_commit = {found}")
        try:
            with PostgresLedger.open(database, ANALYSIS) as store:
                assert store._owner.select("SHOW synchronous_commit") == [(want,)]
        finally:
            execute("ALTER ROLE CURRENT_USER RESET synchronous_commit")


def test_no_error_tells_the_password() -> None:
    for url in (
        "postgresql://u:secret@/nowhere?host=/nonexistent",
        "postgresql://u:secret@127.0.0.1:1/nowhere",
        "host=/nonexistent user=u password=secret",
    ):
        database = PostgresDatabase(url)
        with pytest.raises(Unavailable, match="cannot be reached") as error:
            PostgresLedger.open(database, ANALYSIS)
        told = f"{error.value!r} {error.value.__cause__!r} {database} {database!r}"
        assert "secret" not in told
        assert "u@" in str(database)


def test_other_analysis_settings_and_formats_are_refused(
    database: PostgresDatabase, execute: Sql
) -> None:
    assert recorded(database, "analysis") is None
    with PostgresLedger.open(database, ANALYSIS) as store:
        fill(store)
        assert recorded(database, "plan") is None
        for plan in ("{}", '{"version": 2}'):
            store.commit(LedgerChange(plan=plan, pending=f"[{plan}]"))
            assert store.pending_plan() == f"[{plan}]"
        store.commit(LedgerChange(pending=""))
        assert store.pending_plan() == ""
    assert recorded(database, "analysis") == ANALYSIS
    assert recorded(database, "plan") == '{"version": 2}'
    with pytest.raises(DataDirectoryError, match="text analysis"):
        PostgresLedger.open(database, '{"stem": "english"}')
    execute(f"UPDATE meta SET value = '0', crc32 = {zlib.crc32(b'0')} WHERE key = 'format'")
    with pytest.raises(DataDirectoryError, match="format 0, older than 1"):
        PostgresLedger.open(database, ANALYSIS)


# --- damage ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "harm",
    [
        "DELETE FROM log WHERE lsn_from = 3",
        "UPDATE log SET lsn_to = 9 WHERE lsn_from = 4",
        "UPDATE log SET lsn_from = 0 WHERE lsn_from = 1",
        "UPDATE log SET blob = overlay(blob placing '\\xff' from 30) WHERE lsn_from = 3",
        "UPDATE log SET blob = substr(blob, 2)",
        "UPDATE log SET crc32 = crc32 + 1",
        "UPDATE meta SET value = '1e' WHERE key = 'format'",
        "UPDATE meta SET value = '3' WHERE key = 'watermark'",
        "DELETE FROM meta WHERE key IN ('watermark', 'identity')",
        "UPDATE requests SET lsn_to = 5",
        "UPDATE requests SET crc32 = 5",
        "UPDATE sessions SET name = '\\x00' WHERE number = 7",
        "UPDATE sessions SET number = 8 WHERE number = 7",
        "UPDATE answers SET seq = 3 WHERE seq = 2",
        "UPDATE answers SET settled = 1 WHERE seq = 2",
        "UPDATE answers SET blob = '\\x00' WHERE seq = 2",
        "UPDATE epochs SET epoch = 2",
        "UPDATE epochs SET number = 2",
        "UPDATE epochs SET role = 'merger'",
        "INSERT INTO documents VALUES ('tokens', 0, '[]')",
        "DROP TABLE answers",
    ],
)
def test_damage_is_told(harm: str, database: PostgresDatabase, execute: Sql) -> None:
    with PostgresLedger.open(database, ANALYSIS) as store:
        fill(store)
    execute(harm)
    with pytest.raises(DataDirectoryError, match=r"damaged|cannot be read"):
        PostgresLedger.open(database, ANALYSIS)


def test_a_flipped_bit_in_the_servers_files_is_told(
    postgres: Server, database: PostgresDatabase, execute: Sql
) -> None:
    with PostgresLedger.open(database, ANALYSIS) as store:
        fill(store)
    execute("CHECKPOINT")
    [(path,)] = execute("SELECT pg_relation_filepath('log')")
    postgres.stop()
    file = postgres.data / path
    raw = bytearray(file.read_bytes())
    raw[-100] ^= 4
    file.write_bytes(raw)
    postgres.start()
    with pytest.raises(DataDirectoryError, match="cannot be read"):
        PostgresLedger.open(database, ANALYSIS)


# --- compaction --------------------------------------------------------------------------


def test_compaction_drops_what_is_dead_below_the_watermark(
    database: PostgresDatabase, execute: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PostgresLedger.open(database, ANALYSIS) as store:
        for part in range(4):
            names = [insert(f"{part}-{i}") for i in range(50)]
            store.commit(LedgerChange(applied(names, 50 * part + 1)))
        for part in range(3):
            lsn = 201 + 50 * part
            rows = query_rows([delete(f"{part}-{i}") for i in range(50)], lsn)
            rows = rows.replace(handle=np.arange(part * 50 + 1, part * 50 + 51))
            store.commit(LedgerChange(LedgerBatch(lsn, lsn + 49, 0, 0, 0, packed(rows))))
        store.commit(LedgerChange(watermark=325))
        assert not store.compact()
        monkeypatch.setattr(compaction, "MIN_ROWS", 100)
        before = [batch.encode() for batch in store.replay()]
        execute("CREATE TABLE compacted (x int)")  # a compaction was killed here
    with PostgresLedger.open(database, ANALYSIS, compact=False) as store:
        assert [batch.encode() for batch in store.replay()] == before
    with PostgresLedger.open(database, ANALYSIS) as store:
        assert lsns(store) == [100, 150, 300, 350]  # what is empty belongs to the one before
        left = QueryRows.concat([rows_of(batch) for batch in store.replay()])
        names_left = [f"2-{i}" for i in range(25, 50)]
        assert ids_of(left) == [*names_left, *(f"3-{i}" for i in range(50)), *names_left]
        store.commit(change(351))
        assert lsns(store)[-1] == 351
    with PostgresLedger.open(database, ANALYSIS) as store:
        assert lsns(store)[-1] == 351


def test_batches_are_replaced_by_one_and_only_by_the_owner(database: PostgresDatabase) -> None:
    joined = LedgerBatch(2, 3, 0, 0, 3, packed(query_rows([insert("q3")], 3)))
    with PostgresLedger.open(database, ANALYSIS) as store:
        for lsn in range(1, 5):
            store.commit(change(lsn))
        with PostgresLedger.open(database, ANALYSIS, take_over=True) as owner:
            with pytest.raises(StoreFailed):
                store.replace(joined)
            assert lsns(owner) == [1, 2, 3, 4]
            owner.replace(joined)
            assert lsns(owner) == [1, 3, 4]
            assert [ids_of(rows_of(batch)) for batch in owner.replay(1)] == [["q3"], ["q4"]]
