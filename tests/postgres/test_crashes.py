"""What was acknowledged is there, wherever the server or the line to it broke."""

from __future__ import annotations

import contextlib
import os
import random
import select
import socket
import threading
import time
from pathlib import Path

import pytest

from ps2stream.errors import StoreFailed, Unavailable
from ps2stream.protocol.ports import LedgerChange
from ps2stream.store.postgres import PostgresLedger
from ps2stream.store.postgres_log import PostgresLog
from ps2stream.store.postgres_session import PostgresDatabase
from tests.support.ledgers import ANALYSIS, answer
from tests.support.postgres_server import USER, Server
from tests.support.updates import applied, insert

KILLS = int(os.environ.get("PS2STREAM_KILLS", "8"))


class Writer(threading.Thread):
    """Commits and appends until the database does not answer; `acked` is what was said to be
    durable, `tried` what may be."""

    def __init__(self, database: PostgresDatabase, lsn: int) -> None:
        super().__init__()
        self.acked = self.tried = lsn
        self.positions: list[tuple[int, bytes]] = []
        self.epochs: list[int] = []
        self.unexpected: list[BaseException] = []
        self._store = PostgresLedger.open(database, ANALYSIS)
        self._log = PostgresLog.open(database, "objects-0", patience_s=0)

    def run(self) -> None:
        try:
            while True:
                rows = [insert(f"{self.tried + 1}-{i}") for i in range(self.tried % 7 + 1)]
                batch = applied(rows, self.acked + 1)
                self.tried = batch.lsn_to
                self._store.commit(LedgerChange(batch, answers=[answer(0, 1, batch.lsn_to)]))
                self.acked = batch.lsn_to
                record = b"%d" % self.acked * 30
                position = self._log.append(record)
                self._log.sync()
                self.positions.append((position, record))
                if self.acked % 5 == 0:
                    self.epochs.append(self._store.epoch("worker", 1))
        except Unavailable:
            pass
        except BaseException as error:  # noqa: BLE001
            self.unexpected.append(error)
        finally:
            self._store.close()
            self._log.close()


@pytest.mark.takes_turns
@pytest.mark.slow
def test_a_server_killed_amid_commits_keeps_what_it_acknowledged(
    postgres: Server, database: PostgresDatabase
) -> None:
    lsn = epoch = 0
    positions: dict[int, bytes] = {}
    rng = random.Random(1)
    for _ in range(KILLS):
        writer = Writer(database, lsn)
        writer.start()
        time.sleep(rng.uniform(0.05, 0.4))
        postgres.crash()
        writer.join()
        postgres.start()
        assert writer.unexpected == []
        positions.update(writer.positions)
        epoch = max([epoch, *writer.epochs])
        with PostgresLedger.open(database, ANALYSIS) as store:
            found = [batch.lsn_to for batch in store.replay()]
            lsn = found[-1] if found else 0
            assert lsn in (writer.acked, writer.tried)
            assert {a.seq for a in store.answers()} == set(found)
            given = store.epoch("worker", 1)
            assert given > epoch
            epoch = given
        with PostgresLog.open(database, "objects-0") as log:
            assert positions.items() <= dict(log.scan()).items()
            positions = dict(log.scan())
    assert lsn > KILLS


# --- the line -------------------------------------------------------------------------


class Line:
    """A socket between client and server that can be cut at the end of a transaction: before
    the server hears of it, or before the client hears what became of it."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.cut = ""
        self._to = str(server.folder / ".s.PGSQL.5432")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._open = False
        self._listener.close()

    def _accept(self) -> None:
        while self._open:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._to)
            ways = {client: (server, "before"), server: (client, "after")}
            with contextlib.suppress(OSError):
                while True:
                    for end in select.select(list(ways), [], [])[0]:
                        data = end.recv(1 << 20)
                        to, when = ways[end]
                        if not data or (self.cut == when and b"COMMIT" in data):
                            return
                        to.sendall(data)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_line_cut_amid_a_commit_leaves_it_open(
    when: str, postgres: Server, database: PostgresDatabase, tmp_path: Path
) -> None:
    line = Line(postgres, tmp_path)
    with contextlib.closing(line):
        through = PostgresDatabase(
            f"postgresql://{USER}@/postgres?host={tmp_path}", database.schema
        )
        store, log = PostgresLedger.open(through, ANALYSIS), PostgresLog.open(through, "log")
        store.commit(LedgerChange(applied([insert("a")], 1)))
        log.append(b"a")
        log.sync()
        line.cut = when
        with pytest.raises(StoreFailed):
            store.commit(LedgerChange(applied([insert("b")], 2)))
        log.append(b"b")
        with pytest.raises(StoreFailed):
            log.sync()
        line.cut = ""
        with pytest.raises(StoreFailed, match="until a restart"):
            store.commit(LedgerChange(applied([insert("b")], 2)))
        with pytest.raises(Unavailable, match="until a restart"):
            log.append(b"c")
        store.close()
        log.close()
    done = when == "after"
    with PostgresLedger.open(database, ANALYSIS) as store:
        assert [batch.lsn_to for batch in store.replay()] == [1, 2][: 1 + done]
    with PostgresLog.open(database, "log") as log:
        assert [record for _, record in log.scan()] == [b"a", b"b"][: 1 + done]
