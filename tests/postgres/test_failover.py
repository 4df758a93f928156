"""A primary with a synchronous standby: what was acknowledged outlives the primary and its disk."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from pydantic import SecretStr

from ps2stream.client.client import Client
from ps2stream.cluster.doctor_checks import check_database
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import Ps2StreamError, StoreFailed, Unavailable
from ps2stream.protocol.ports import LedgerChange
from ps2stream.store.postgres import PostgresLedger
from ps2stream.store.postgres_log import PostgresLog
from ps2stream.store.postgres_session import PostgresDatabase
from tests.support.ledgers import ANALYSIS
from tests.support.postgres_server import Server, installed, primary_and_standby
from tests.support.updates import applied, insert

pytestmark = pytest.mark.takes_turns

ROW = {"text": "a word", "lon": 1.0, "lat": 2.0}
OWNER_WAIT = "ps2stream.store.postgres_owner.WAIT_S"


class Pair(NamedTuple):
    """Two servers, the second being the standby of the first, and a database of both."""

    primary: Server
    standby: Server
    database: PostgresDatabase


@pytest.fixture
def pair() -> Iterator[Pair]:
    programs = installed()
    if programs is None:
        pytest.skip("there is no PostgreSQL here (Debian: apt-get install postgresql)")
    with primary_and_standby(programs) as (first, second, url):
        yield Pair(first, second, PostgresDatabase(url))


def lose(server: Server) -> None:
    """kill -9, and its disk is gone."""
    server.crash()
    shutil.rmtree(server.data)


def test_what_was_acknowledged_outlives_the_disk_of_the_primary(pair: Pair, tmp_path: Path) -> None:
    settings = Settings(
        runtime="local", port=0, workers=2, dispatchers=2, mergers=2, adjust="off",
        data_dir=tmp_path / "unused", database_url=SecretStr(pair.database.url),
    )  # fmt: skip
    published: list[str] = []
    accepted: set[str] = set()
    killer = threading.Thread(target=lose, args=[pair.primary])
    with (
        contextlib.suppress(Ps2StreamError),
        start(settings) as service,
        Client(service.targets[0], timeout=5) as client,
    ):
        client.insert("q", "word", session="ann")
        while killer.ident is None or killer.is_alive():
            published.append(f"o{len(published)}")
            with contextlib.suppress(Ps2StreamError, TimeoutError):
                client.publish([ROW | {"id": published[-1]}])
                accepted.add(published[-1])
            if len(accepted) > 10 and killer.ident is None:
                killer.start()
    pair.standby.promote(standbys="")
    with start(settings) as service, Client(service.targets[0], timeout=60) as client:
        client.publish([ROW | {"id": "last"}])
        found: list[str] = []
        with client.subscribe("ann") as matches:
            for match in matches:
                found.append(match.object_id)
                if match.object_id == "last":
                    break
    assert len(found) == len(set(found))
    assert accepted <= set(found) <= {*published, "last"}


def test_a_commit_that_no_standby_has_is_not_acknowledged(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresLedger.open(pair.database, ANALYSIS)
    store.commit(LedgerChange(applied([insert("a")], 1)))
    pair.standby.stop()
    outcome: list[BaseException | None] = []

    def commit() -> None:
        try:
            store.commit(LedgerChange(applied([insert("b")], 2)))
            outcome.append(None)
        except StoreFailed as error:
            outcome.append(error)

    committing = threading.Thread(target=commit)
    committing.start()
    waits = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    while not pair.primary.execute(waits):
        time.sleep(0.01)
    pair.primary.execute(f"SELECT pg_cancel_backend(pid) FROM ({waits}) waiting")
    committing.join(30)
    assert "no standby has confirmed it (synchronous_standby_names)" in str(outcome[0])
    store.close()
    # A successor would read what no standby has, so it does not begin before one has it.
    monkeypatch.setattr(OWNER_WAIT, 0.5)
    with pytest.raises(Unavailable, match="cannot be opened: no standby has confirmed it"):
        PostgresLedger.open(pair.database, ANALYSIS)
    pair.standby.start()
    with PostgresLedger.open(pair.database, ANALYSIS) as again:
        assert [batch.lsn_to for batch in again.replay()] == [1, 2]
    lose(pair.primary)
    pair.standby.promote(standbys="")
    with PostgresLedger.open(pair.database, ANALYSIS) as promoted:
        assert [batch.lsn_to for batch in promoted.replay()] == [1, 2]


def test_a_former_primary_that_comes_back_is_neither_written_nor_read(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = PostgresLog.open(pair.database, "objects-0")
    log.append(b"a")
    log.sync()
    pair.standby.crash()
    log.append(b"only here")

    def sync() -> None:
        with contextlib.suppress(StoreFailed):
            log.sync()

    syncing = threading.Thread(target=sync)
    syncing.start()
    while not pair.primary.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"):
        time.sleep(0.01)
    pair.primary.crash()
    syncing.join()
    log.close()
    pair.standby.start()
    pair.standby.promote(standbys="")
    log = PostgresLog.open(pair.database, "objects-0")
    log.append(b"of the new")
    log.sync()
    pair.primary.start()
    monkeypatch.setattr(OWNER_WAIT, 0.5)
    with pytest.raises(Unavailable, match="cannot be opened: no standby has confirmed it"):
        PostgresLog.open(pair.database, "objects-0")  # which finds the old one first
    with psycopg.connect(pair.standby.url, autocommit=True) as db:
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name LIKE 'ps2stream %'"
        )
    with pytest.raises(StoreFailed, match=r"another server .*\(timeline 1 instead of 2\)"):
        log.read(2)
    with pytest.raises(Unavailable, match=r"until a restart: .*another server"):
        log.append(b"more")
    log.close()


def test_a_standby_is_not_the_database_until_it_is_promoted(pair: Pair) -> None:
    alone = PostgresDatabase(pair.standby.url)
    with pytest.raises(Unavailable, match=r"cannot be reached: .*hot standby"):
        alone.connect("test")
    assert pair.database.has_synchronous_standby()
    settings = Settings(database_url=SecretStr(pair.database.url))
    assert check_database(settings).verdict == "ok"
    host = f"{pair.primary.folder},{pair.standby.folder}"
    assert str(pair.database) == f"postgresql://tester@{host}/postgres, schema ps2stream"
    store, log = PostgresLedger.open(pair.database, ANALYSIS), PostgresLog.open(pair.database, "x")
    lose(pair.primary)
    pair.standby.promote(standbys="")
    log.append(b"a")
    for write in (store.epoch, lambda *_: log.sync()):
        with pytest.raises(StoreFailed, match=r"another server .*\(timeline 2 instead of 1\)"):
            write("worker", 0)
    store.close()
    log.close()
