"""Flipped, cut and missing bytes: all that was acknowledged is there, or the start says no."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ps2stream.errors import DataDirectoryError
from ps2stream.protocol.ports import LedgerChange
from ps2stream.store.ledger import Ledger, recorded
from tests.support.ledgers import ANALYSIS, answer, requests
from tests.support.updates import applied, delete, insert

Content = tuple[object, ...]
FILES = ("ledger.db", "ledger.db-wal", "mark")


def content(store: Ledger) -> Content:
    return (
        [batch.encode() for batch in store.replay()],
        store.sessions(),
        [seen.encode() for seen in store.requests()],
        [(*a[:4], a.decision.encode()) for a in store.answers()],
        store._read_epochs(),
        store.watermark,
        store.identity,
    )


def killed(path: Path) -> Content:
    """The files that a kill leaves: an old part in the database, the rest in its log."""
    (path / "live").mkdir()
    with Ledger.open(path / "live", ANALYSIS) as store:
        store.commit(LedgerChange(applied([insert("a"), insert("b")], 1), sessions=[(1, b"s")]))
        store.epoch("worker", 1)
    with Ledger.open(path / "live", ANALYSIS) as store:
        store.commit(LedgerChange(applied([insert("c", "é" * 9)], 3), sessions=[(2, b"t")]))
        gone = applied([delete("a")], 4)
        store.commit(LedgerChange(gone, requests=requests(4, "a", "r"), watermark=2))
        store.commit(
            LedgerChange(applied([insert("d")], 5), answers=[answer(0, 1, 1), answer(1, 1, 1)])
        )
        store.commit(LedgerChange(answers=[answer(0, 1, 2, 2)]))
        store.commit(LedgerChange(sessions=[(3, b"u")]))
        store.epoch("worker", 1)
        store.epoch("merger", 0)
        for name in FILES:
            shutil.copy(path / "live" / name, path / name)
        return content(store)


def held(path: Path) -> list[bytes]:
    """The files of the ledger; SQLite makes an empty log where there is none."""
    raw = [(path / name).read_bytes() for name in FILES if (path / name).exists()]
    return [file for file in raw if file]


def start(path: Path) -> Content | None:
    """What a service started on these files would know; None when it refuses, and then the
    files are as they were."""
    before = held(path)
    try:
        assert recorded(path, "analysis") in {ANALYSIS, None}
        with Ledger.open(path, ANALYSIS) as store:
            return content(store)
    except DataDirectoryError:
        assert held(path) == before
        return None


def flips(raw: bytes, page: int) -> Iterator[int]:
    """Every byte that is not zero, and the first ones of each page, thinned out."""
    told = [i for i, byte in enumerate(raw) if byte or i % page < 48]
    return iter(told[:: max(1, len(told) // 150)])


def test_a_kill_loses_nothing_and_a_start_puts_the_log_away(tmp_path: Path) -> None:
    want = killed(tmp_path)
    assert start(tmp_path) == want
    assert not (tmp_path / "ledger.db-wal").exists()
    assert start(tmp_path) == want


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_byte_loses_nothing_in_silence(name: str, tmp_path: Path) -> None:
    want = killed(tmp_path)
    good = {name: (tmp_path / name).read_bytes() for name in FILES}
    refused = 0
    for at in flips(good[name], 16384):
        for other, raw in good.items():
            (tmp_path / other).write_bytes(raw)
        bad = bytearray(good[name])
        bad[at] ^= 0x21
        (tmp_path / name).write_bytes(bad)
        found = start(tmp_path)
        assert found is None or found == want, f"byte {at}"
        refused += found is None
    assert refused > 5


def test_an_end_that_is_cut_off_is_noticed_wherever_the_cut_is(tmp_path: Path) -> None:
    want = killed(tmp_path)
    wal = (tmp_path / "ledger.db-wal").read_bytes()
    db, mark = (tmp_path / "ledger.db").read_bytes(), (tmp_path / "mark").read_bytes()
    for size in (0, 20, 32, len(wal) // 2, len(wal) - 16408, len(wal) - 1):
        (tmp_path / "ledger.db-wal").write_bytes(wal[:size])
        with pytest.raises(DataDirectoryError, match="LSN 5, 3 sessions and 3 epochs were ack"):
            Ledger.open(tmp_path, ANALYSIS)
    (tmp_path / "ledger.db-wal").unlink()
    with pytest.raises(DataDirectoryError, match="ends at LSN 2, 1 sessions and 1 epochs, but"):
        Ledger.open(tmp_path, ANALYSIS)
    assert (tmp_path / "ledger.db").read_bytes() == db
    assert (tmp_path / "mark").read_bytes() == mark
    (tmp_path / "ledger.db-wal").write_bytes(wal)
    assert start(tmp_path) == want


@pytest.mark.parametrize("empty", [True, False])
def test_a_missing_ledger_is_not_made_anew(empty: bool, tmp_path: Path) -> None:
    killed(tmp_path)
    for name in ("ledger.db", "ledger.db-wal"):
        (tmp_path / name).unlink()
        if empty:
            (tmp_path / name).touch()
    with pytest.raises(DataDirectoryError, match="the end of the ledger is damaged or missing"):
        Ledger.open(tmp_path, ANALYSIS)
    assert not (tmp_path / "ledger.db").stat().st_size
    assert recorded(tmp_path, "plan") is None  # the next start gives the same reason


def test_without_the_mark_one_goes_on_with_what_there_is(tmp_path: Path) -> None:
    want = killed(tmp_path)
    (tmp_path / "ledger.db-wal").unlink()
    assert start(tmp_path) is None
    (tmp_path / "mark").unlink()
    found = start(tmp_path)
    assert found is not None
    batches, before = found[0], want[0]
    assert isinstance(batches, list)
    assert isinstance(before, list)
    assert batches == before[:1]
    with Ledger.open(tmp_path, ANALYSIS) as store:
        store.commit(LedgerChange(applied([insert("new")], 3)))
    raw = bytearray((tmp_path / "mark").read_bytes())
    raw[-1] ^= 1
    (tmp_path / "mark").write_bytes(raw)
    with pytest.raises(DataDirectoryError, match="mark is damaged"):
        Ledger.open(tmp_path, ANALYSIS)


def test_a_log_whose_mark_fell_behind_is_whole(tmp_path: Path) -> None:
    want = killed(tmp_path)
    mark = tmp_path / "mark"
    with Ledger.open(tmp_path, ANALYSIS):
        old = mark.read_bytes()
    with Ledger.open(tmp_path, ANALYSIS) as store:
        store.commit(LedgerChange(applied([insert("e")], 6)))
        want = content(store)
    mark.write_bytes(old)
    assert start(tmp_path) == want
    assert mark.read_bytes() != old


def test_an_epoch_is_never_given_twice_though_nothing_else_was_written(tmp_path: Path) -> None:
    """It fences: an end of the log that only has epochs is missed, too."""
    (tmp_path / "live").mkdir()
    Ledger.open(tmp_path / "live", ANALYSIS).close()
    with Ledger.open(tmp_path / "live", ANALYSIS) as store:
        assert [store.epoch("dispatcher", 1) for _ in range(3)] == [1, 2, 3]
        for name in FILES:
            shutil.copy(tmp_path / "live" / name, tmp_path / name)
    wal = (tmp_path / "ledger.db-wal").read_bytes()
    (tmp_path / "ledger.db-wal").write_bytes(wal[:-1])
    with pytest.raises(DataDirectoryError, match="2 epochs, but LSN 0, 0 sessions and 3 epochs"):
        Ledger.open(tmp_path, ANALYSIS)
    (tmp_path / "ledger.db-wal").write_bytes(wal)
    with Ledger.open(tmp_path, ANALYSIS) as store:
        assert store.epoch("dispatcher", 1) == 4
