"""The embedded ledger: what is committed is there, and damage is never passed over."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import apsw
import numpy as np
import pytest

from ps2stream.batch import strings_to_column
from ps2stream.errors import DataDirectoryError, Unavailable
from ps2stream.messages import Applied
from ps2stream.ports import DeleteRequests, Store
from ps2stream.rows import QueryRows
from ps2stream.store import ledger as module
from ps2stream.store.ledger import Ledger
from ps2stream.store.memory import MemoryStore
from tests.unit.updates import applied, delete, ids_of, insert, packed, query_rows

ANALYSIS = '{"stem": "english", "stop": true}'


def rows_of(batch: Applied) -> QueryRows:
    return QueryRows.decode(batch.rows.data)


def requests(lsn: int, id: str, request: str) -> DeleteRequests:
    return DeleteRequests(np.array([lsn]), *strings_to_column([id]), *strings_to_column([request]))


def fill(store: Store) -> list[bytes]:
    first = applied([insert("a"), insert("b")], 1)
    second, third = applied([insert("c", "é" * 9)], 3, 1), applied([delete("a")], 4)
    store.commit([first], [(1, b"s"), (7, "ß".encode())])
    store.commit([second, third], requests=requests(4, "a", "r"))
    return [b.encode() for b in (first, second, third)]


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_what_was_committed_is_read_back(where: str, tmp_path: Path) -> None:
    store: Store = MemoryStore() if where == "memory" else Ledger.open(tmp_path, ANALYSIS)
    want = fill(store)
    for _ in range(2):
        assert [b.encode() for b in store.replay()] == want
        assert sorted(store.sessions()) == [(1, b"s"), (7, "ß".encode())]
        [seen] = store.requests()
        assert (seen.lsn.tolist(), seen.id.tobytes(), seen.request.tobytes()) == ([4], b"a", b"r")
        if where == "disk":
            store.close()
            store = Ledger.open(tmp_path, '{"stop": true,  "stem": "english"}')
    store.commit([applied([insert("d")], 5)], requests=requests(5, "x", "y"), forget=5)
    assert [s.lsn.tolist() for s in store.requests()] == [[5]]
    store.commit([applied([insert("e")], 6)], requests=requests(6, "x", "z"), forget=5)
    assert [s.lsn.tolist() for s in store.requests()] == [[5], [6]]
    store.close()


def test_every_commit_is_synced(tmp_path: Path) -> None:
    for _ in range(2):
        with Ledger.open(tmp_path, ANALYSIS) as store:
            assert (store._db.pragma("journal_mode"), store._db.pragma("synchronous")) == ("wal", 2)


def test_a_kill_after_commit_loses_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, os, signal; from tests.unit.test_ledger import *\n"
        f"store = Ledger.open({str(tmp_path)!r}, ANALYSIS); fill(store)\n"
        "store._db.execute('BEGIN'); store._write('log', applied([insert('torn')], 5))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, env={**os.environ, "PYTHONPATH": "."}
    )
    assert done.returncode == -signal.SIGKILL
    with Ledger.open(tmp_path, ANALYSIS) as store:
        assert [b.lsn_to for b in store.replay()] == [2, 3, 4]


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    with Ledger.open(tmp_path, ANALYSIS) as store:
        with pytest.raises(DataDirectoryError, match=f"in use by process {os.getpid()}"):
            Ledger.open(tmp_path, ANALYSIS)
        fill(store)
    Ledger.open(tmp_path, ANALYSIS).close()


def test_other_analysis_settings_are_refused(tmp_path: Path) -> None:
    with Ledger.open(tmp_path, ANALYSIS) as store:
        fill(store)
    before = (tmp_path / "ledger.db").read_bytes()
    with pytest.raises(DataDirectoryError, match="text analysis"):
        Ledger.open(tmp_path, '{"stem": null}')
    assert (tmp_path / "ledger.db").read_bytes() == before
    with Ledger.open(tmp_path, ANALYSIS) as store:
        assert len(list(store.replay())) == 3


@pytest.mark.parametrize(("other", "age"), [(9, "newer"), (1, "older")])
def test_another_format_is_refused_and_left_alone(
    other: int, age: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FORMAT", other)
    with Ledger.open(tmp_path, ANALYSIS) as store:
        fill(store)
    monkeypatch.undo()
    before = (tmp_path / "ledger.db").read_bytes()
    with pytest.raises(DataDirectoryError, match=f"format {other}, {age} than 2"):
        Ledger.open(tmp_path, ANALYSIS)
    assert (tmp_path / "ledger.db").read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"not a database" * 100, b"SQLite format 3\0" + b"\xff" * 4080]
)
def test_a_file_that_is_no_ledger(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(content)
    with pytest.raises(DataDirectoryError, match="damaged or not a ledger"):
        Ledger.open(tmp_path, ANALYSIS)
    assert (tmp_path / "ledger.db").read_bytes() == content


def test_a_foreign_database(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "ledger.db")
    db.execute("CREATE TABLE mine (x)")
    db.close()
    with pytest.raises(DataDirectoryError):
        Ledger.open(tmp_path, ANALYSIS)


def test_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataDirectoryError, match="is not a directory"):
        Ledger.open(tmp_path / "file", ANALYSIS)
    with pytest.raises(DataDirectoryError):
        Ledger.open(tmp_path / "file" / "below", ANALYSIS)


def test_every_flipped_bit_in_a_blob_is_noticed(tmp_path: Path) -> None:
    with Ledger.open(tmp_path, ANALYSIS) as store:
        want = fill(store)
    path = tmp_path / "ledger.db"
    good = path.read_bytes()
    at = good.index(want[1][:64])
    for offset in (0, 30, 200, len(want[1]) - 1):
        bad = bytearray(good)
        bad[at + offset] ^= 4
        path.write_bytes(bad)
        with pytest.raises(DataDirectoryError, match="damaged"):
            Ledger.open(tmp_path, ANALYSIS)
    path.write_bytes(good)
    Ledger.open(tmp_path, ANALYSIS).close()


@pytest.mark.parametrize(
    "harm",
    [
        "DELETE FROM log WHERE lsn_from = 3",
        "UPDATE log SET lsn_to = 9 WHERE lsn_from = 4",
        "UPDATE log SET lsn_from = 0 WHERE lsn_from = 1",
        "UPDATE meta SET value = '1e' WHERE key = 'format'",
        "UPDATE meta SET value = '{' WHERE key = 'analysis'",
        "UPDATE meta SET value = '3' WHERE key = 'format'",
        "DELETE FROM meta",
        "DROP TABLE meta",
        "DROP TABLE requests; CREATE TABLE requests (lsn_to, crc32, blob)",
        "UPDATE requests SET lsn_to = 5",
        "UPDATE requests SET crc32 = 5",
        "DELETE FROM log WHERE lsn_from = 4",
        "DELETE FROM sessions WHERE number = 7",
    ],
)
def test_missing_and_changed_rows_are_noticed(harm: str, tmp_path: Path) -> None:
    with Ledger.open(tmp_path, ANALYSIS) as store:
        fill(store)
    db = apsw.Connection(str(tmp_path / "ledger.db"))
    db.execute(harm)
    db.close()
    with pytest.raises(DataDirectoryError, match="damaged"):
        Ledger.open(tmp_path, ANALYSIS)


def test_a_changed_session_name_is_noticed(tmp_path: Path) -> None:
    with Ledger.open(tmp_path, ANALYSIS) as store:
        fill(store)
        store._db.execute("UPDATE sessions SET name = x'00' WHERE number = 7")
        with pytest.raises(DataDirectoryError, match="session 7"):
            store.sessions()


def test_a_full_disk_refuses_updates_and_recovers(tmp_path: Path) -> None:
    with Ledger.open(tmp_path, ANALYSIS) as store:
        fill(store)
        pages = store._db.pragma("page_count")
        store._db.pragma("max_page_count", pages)
        big = applied([insert("x" * 400_000)], 5)
        with pytest.raises(Unavailable, match="full"):
            store.commit([big], [(9, b"new")])
        assert len(list(store.replay())) == 3
        assert 9 not in dict(store.sessions())
        store._db.pragma("max_page_count", 1_000_000)
        store.commit([big], [(9, b"new")])
        assert len(list(store.replay())) == 4


def test_after_an_io_error_nothing_is_written_but_reading_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.open(tmp_path, ANALYSIS) as store:
        fill(store)

        def broken(*_: object) -> None:
            raise apsw.IOError("disk I/O error")

        with monkeypatch.context() as patch:
            patch.setattr(store, "_write", broken)
            with pytest.raises(Unavailable, match="I/O"):
                store.commit([applied([insert("d")], 5)])
        with pytest.raises(Unavailable, match="until a restart"):
            store.commit([applied([insert("d")], 5)])
        assert len(list(store.replay())) == 3


def test_compaction_drops_dead_rows_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.open(tmp_path, ANALYSIS) as store:
        lsn = 1
        for part in range(20):
            store.commit([applied([insert(f"{part}-{i}") for i in range(50)], lsn)])
            lsn += 50
        for part in range(19):
            rows = query_rows([delete(f"{part}-{i}") for i in range(50)], lsn)
            rows = rows.replace(handle=np.arange(part * 50 + 1, part * 50 + 51))
            store.commit([Applied(lsn, lsn + 49, 0, packed(rows))])
            lsn += 50
        size = sum(len(b.rows) for b in store.replay())
        assert not store.compact()
        monkeypatch.setattr(module, "MIN_COMPACT", 100)
    with Ledger.open(tmp_path, ANALYSIS) as store:
        batches = list(store.replay())
        assert batches[-1].lsn_to == lsn - 1
        assert sum(len(b.rows) for b in batches) < size / 2
        left = QueryRows.concat([rows_of(b) for b in batches])
        assert ids_of(left) == [f"19-{i}" for i in range(50)]
        assert left.lsn.tolist() == left.handle.tolist() == list(range(951, 1001))
        assert not store.compact()
        store.commit([applied([insert("more")], lsn)])
        assert len(list(store.replay())) == 40
