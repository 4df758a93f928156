"""The embedded ledger: what is committed is there, and damage is never passed over."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import apsw
import numpy as np
import pytest

from ps2stream.errors import DataDirectoryError, StoreFailed, Unavailable
from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.ports import LedgerChange
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.store import compaction
from ps2stream.store.ledger import Ledger, recorded
from tests.support.ledgers import ANALYSIS, fill, rows_of
from tests.support.updates import applied, delete, ids_of, insert, packed, query_rows


def test_every_commit_is_synced(tmp_path: Path) -> None:
    for _ in range(2):
        with Ledger.open(tmp_path, ANALYSIS) as store:
            assert (store._db.pragma("journal_mode"), store._db.pragma("synchronous")) == ("wal", 2)


def test_a_kill_after_commit_loses_nothing(tmp_path: Path) -> None:
    code = (
        "import os, signal\n"
        "from ps2stream.store.ledger import Ledger\n"
        "from tests.support.ledgers import ANALYSIS, fill\n"
        "from tests.support.updates import applied, insert\n"
        "from ps2stream.store.tables import log_row\n"
        f"store = Ledger.open({str(tmp_path)!r}, ANALYSIS); fill(store)\n"
        "store._db.execute('BEGIN')\n"
        "store._insert_row('log', log_row(applied([insert('torn')], 5)))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, env={**os.environ, "PYTHONPATH": "."}
    )
    assert done.returncode == -signal.SIGKILL
    with Ledger.open(tmp_path, ANALYSIS) as store:
        assert [b.lsn_to for b in store.replay()] == [2, 3, 4]


def test_the_plan_is_what_was_last_committed(tmp_path: Path) -> None:
    assert recorded(tmp_path, "plan") is None
    with Ledger.open(tmp_path, ANALYSIS) as store:
        store.commit(LedgerChange())
        assert recorded(tmp_path, "plan") is None
        for plan in ("{}", '{"version": 2}'):
            store.commit(LedgerChange(plan=plan))
        store.commit(LedgerChange(applied([insert("a")], 1)))
    assert recorded(tmp_path, "plan") == '{"version": 2}'
    with Ledger.open(tmp_path, ANALYSIS) as store:
        store._db.execute("UPDATE meta SET value = '{}' WHERE key = 'plan'")
    with pytest.raises(DataDirectoryError, match="the checksum of plan"):
        recorded(tmp_path, "plan")


def test_the_pending_plan_is_kept_with_a_commit_and_goes_with_one(tmp_path: Path) -> None:
    with Ledger.open(tmp_path, ANALYSIS) as store:
        assert store.pending_plan() == ""
        store.commit(LedgerChange(pending="{}"))
        store.commit(LedgerChange(plan="[]"))
    assert recorded(tmp_path, "pending_plan") == "{}"
    with Ledger.open(tmp_path, ANALYSIS) as store:
        assert store.pending_plan() == "{}"
        store.commit(LedgerChange(applied([insert("a")], 1), plan="{}", pending=""))
        assert store.pending_plan() == ""
    assert (recorded(tmp_path, "plan"), recorded(tmp_path, "pending_plan")) == ("{}", "")


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


@pytest.mark.parametrize(("other", "age"), [(9, "newer"), (2, "older")])
def test_another_format_is_refused_and_left_alone(
    other: int, age: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ledger, "FORMAT", other)
    with Ledger.open(tmp_path, ANALYSIS) as store:
        fill(store)
    monkeypatch.undo()
    before = (tmp_path / "ledger.db").read_bytes()
    with pytest.raises(DataDirectoryError, match=f"format {other}, {age} than 3"):
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
        "UPDATE meta SET value = '3' WHERE key = 'watermark'",
        "DELETE FROM meta WHERE key = 'watermark'",
        "UPDATE meta SET crc32 = 3 WHERE key = 'identity'",
        "DELETE FROM meta WHERE key = 'identity'",
        "DELETE FROM meta",
        "DROP TABLE meta",
        "DROP TABLE requests; CREATE TABLE requests (lsn_to, crc32, blob)",
        "UPDATE requests SET lsn_to = 5",
        "UPDATE requests SET crc32 = 5",
        "DELETE FROM log WHERE lsn_from = 4",
        "DELETE FROM sessions WHERE number = 7",
        "UPDATE answers SET seq = 3 WHERE seq = 2",
        "UPDATE answers SET settled = 1 WHERE seq = 2",
        "UPDATE answers SET epoch = 2 WHERE seq = 2",
        "UPDATE answers SET dispatcher = 2 WHERE dispatcher = 1",
        "UPDATE answers SET crc32 = 5 WHERE seq = 2",
        "UPDATE answers SET blob = (SELECT blob FROM answers WHERE seq = 1) WHERE seq = 2",
        "UPDATE epochs SET epoch = 2",
        "UPDATE epochs SET epoch = 0",
        "UPDATE epochs SET number = 2",
        "UPDATE epochs SET role = 'merger'",
        "DELETE FROM epochs",
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


class FullDisk(NamedTuple):
    free: int


def test_a_full_disk_refuses_updates_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.open(tmp_path, ANALYSIS) as store:
        fill(store)
        pages = store._db.pragma("page_count")
        store._db.pragma("max_page_count", pages)
        big = LedgerChange(applied([insert("x" * 400_000)], 5), sessions=[(9, b"new")], watermark=3)
        for _ in range(2):
            with pytest.raises(Unavailable, match="full") as refused:
                store.commit(big)
            assert not isinstance(refused.value, StoreFailed)
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "disk_usage", lambda _: FullDisk(free=99))
            assert store.find_problem() == f"the disk of {tmp_path} is full"
        assert len(list(store.replay())) == 3
        assert 9 not in dict(store.sessions())
        assert store.watermark == 0
        store._db.pragma("max_page_count", 1_000_000)
        assert store.find_problem() == ""  # as there is room, it has tried
        store.commit(big)
        assert len(list(store.replay())) == 4
        assert store.watermark == 3
        assert store.epoch("worker", 1) == 2


def test_nothing_is_committed_to_a_file_that_no_restart_would_find(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ps2stream.store")
    data = tmp_path / "data"
    with Ledger.open(data, ANALYSIS) as store:
        fill(store)
        moved = data.rename(tmp_path / "moved")
        removed = f"{data}/ledger.db was removed or replaced; put it back, or restart"
        assert store.find_problem() == removed
        with pytest.raises(Unavailable, match=r"ledger\.db was removed or replaced"):
            store.commit(LedgerChange(plan="{}"))
        data.mkdir()
        (data / "ledger.db").touch()
        with pytest.raises(Unavailable, match=r"ledger\.db was removed or replaced"):
            store.commit(LedgerChange(plan="{}"))
        assert store.find_problem() == removed
        (data / "ledger.db").unlink()
        data.rmdir()
        moved.rename(data)
        assert store.find_problem() == ""
        for _ in range(2):
            store.commit(LedgerChange(plan="{}"))
    told = [record.message for record in caplog.records]
    assert [text.split(" ", 1)[1] for text in told] == [
        "was removed or replaced; put it back, or restart: updates are refused",
        "is written again",
    ]
    assert recorded(data, "plan") == "{}"


def test_a_ledger_that_was_removed_does_not_begin_anew(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with Ledger.open(path, ANALYSIS) as store:
        fill(store)
    shutil.rmtree(path)
    with pytest.raises(DataDirectoryError, match=r"ledger\.db was removed while the service runs"):
        Ledger.open(path, ANALYSIS, compact=False, again=True)
    assert not path.exists()
    path.mkdir()
    (path / "ledger.db").touch()
    with pytest.raises(DataDirectoryError, match=r"ledger\.db was removed while the service runs"):
        Ledger.open(path, ANALYSIS, compact=False, again=True)
    with Ledger.open(path, ANALYSIS) as store:
        fill(store)
    with Ledger.open(path, ANALYSIS, compact=False, again=True) as store:
        assert store.find_problem() == ""


@pytest.mark.parametrize("where", ["BEGIN", "INSERT", "COMMIT"])
def test_after_an_io_error_nothing_is_written_but_reading_goes_on(
    where: str, tmp_path: Path
) -> None:
    with Ledger.open(tmp_path, ANALYSIS) as store:
        fill(store)

        def broken(_: object, sql: str, __: object) -> bool:
            if sql.startswith(where):
                raise apsw.IOError("disk I/O error")
            return True

        store._db.exec_trace = broken
        with pytest.raises(StoreFailed, match="I/O"):
            store.commit(LedgerChange(applied([insert("d")], 5)))
        store._db.exec_trace = None
        with pytest.raises(StoreFailed, match="until a restart"):
            store.commit(LedgerChange(applied([insert("d")], 5)))
        with pytest.raises(StoreFailed, match="until a restart"):
            store.epoch("worker", 1)
        assert len(list(store.replay())) == 3
    with Ledger.open(tmp_path, ANALYSIS) as store:
        store.commit(LedgerChange(applied([insert("d")], 5)))
        assert store.epoch("worker", 1) == 2


def test_an_error_that_is_not_of_the_disk_leaves_no_half_commit(tmp_path: Path) -> None:
    with Ledger.open(tmp_path, ANALYSIS) as store:
        fill(store)
        bad = LedgerChange(applied([insert("d")], 5), sessions=[(9, "no bytes")])  # type: ignore[list-item]
        with pytest.raises(TypeError):
            store.commit(bad)
        store.commit(LedgerChange(applied([insert("d")], 5)))
        assert len(list(store.replay())) == 4


def half_dead(store: Ledger) -> int:
    """20 batches of 50 inserts, then 19 that delete all but the last; their last LSN."""
    lsn = 1
    for part in range(20):
        store.commit(LedgerChange(applied([insert(f"{part}-{i}") for i in range(50)], lsn)))
        lsn += 50
    for part in range(19):
        rows = query_rows([delete(f"{part}-{i}") for i in range(50)], lsn)
        rows = rows.replace(handle=np.arange(part * 50 + 1, part * 50 + 51))
        store.commit(LedgerChange(LedgerBatch(lsn, lsn + 49, 0, 0, 0, packed(rows))))
        lsn += 50
    return lsn - 1


def test_compaction_drops_dead_rows_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.open(tmp_path, ANALYSIS) as store:
        last = half_dead(store)
        store.commit(LedgerChange(watermark=last))
        size = sum(len(b.rows) for b in store.replay())
        assert not store.compact()
        monkeypatch.setattr(compaction, "MIN_ROWS", 100)
    with Ledger.open(tmp_path, ANALYSIS) as store:
        batches = list(store.replay())
        assert batches[-1].lsn_to == last
        assert sum(len(b.rows) for b in batches) < size / 2
        left = QueryRows.concat([rows_of(b) for b in batches])
        assert ids_of(left) == [f"19-{i}" for i in range(50)]
        assert left.lsn.tolist() == left.handle.tolist() == list(range(951, 1001))
        assert not store.compact()
        store.commit(LedgerChange(applied([insert("more")], last + 1)))
        assert len(list(store.replay())) == 3


def test_compaction_keeps_what_was_deleted_above_the_watermark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "MIN_ROWS", 100)
    with Ledger.open(tmp_path, ANALYSIS) as store:
        last = half_dead(store)
        before = [b.encode() for b in store.replay()]
        assert not store.compact()
        store.commit(LedgerChange(watermark=last - 25))  # half of the last deletes
    with Ledger.open(tmp_path, ANALYSIS, compact=False) as store:
        assert [b.encode() for b in store.replay()] == before
    with Ledger.open(tmp_path, ANALYSIS) as store:
        left = QueryRows.concat([rows_of(b) for b in store.replay()])
        assert ids_of(left) == [
            *(f"18-{i}" for i in range(25, 50)),
            *(f"19-{i}" for i in range(50)),
            *(f"18-{i}" for i in range(25, 50)),
        ]
        assert left.kind.tolist() == [UpdateKind.INSERT] * 75 + [UpdateKind.DELETE] * 25
        assert (left.lsn[75:] > store.watermark).all()


def test_a_full_disk_leaves_the_log_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.open(tmp_path, ANALYSIS) as store:
        last = half_dead(store)
        store.commit(LedgerChange(watermark=last - 60))
        before = [b.encode() for b in store.replay()]
        monkeypatch.setattr(compaction, "MIN_ROWS", 100)
        store._db.pragma("max_page_count", store._db.pragma("page_count"))
        assert not store.compact()
        assert [b.encode() for b in store.replay()] == before
        store._db.pragma("max_page_count", 1_000_000)
        assert store.compact()


def test_batches_are_replaced_by_one_at_once(tmp_path: Path) -> None:
    with Ledger.open(tmp_path, ANALYSIS) as store:
        for lsn in range(1, 7):
            store.commit(LedgerChange(applied([insert(f"q{lsn}")], lsn)))
        left = query_rows([insert("q3")], 3)
        joined = LedgerBatch(2, 4, 0, 0, 4, packed(left))
        store._db.pragma("query_only", 1)
        with pytest.raises(StoreFailed):
            store.replace(joined)
        store._db.pragma("query_only", 0)
    with Ledger.open(tmp_path, ANALYSIS) as store:
        assert [batch.lsn_to for batch in store.replay()] == [1, 2, 3, 4, 5, 6]
        store.replace(joined)
    with Ledger.open(tmp_path, ANALYSIS) as store:
        assert [(b.lsn_from, b.lsn_to, b.until) for b in store.replay()] == [
            (1, 1, 0), (2, 4, 4), (5, 5, 0), (6, 6, 0),
        ]  # fmt: skip
        assert [ids_of(rows_of(b)) for b in store.replay(2)] == [["q3"], ["q5"], ["q6"]]
        assert store.lsn == 6
