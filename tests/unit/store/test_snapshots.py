"""Snapshots on a disk: what was written, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from ps2stream.errors import DataDirectoryError
from ps2stream.protocol.frame import Array
from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.ports import LedgerChange
from ps2stream.store import snapshots
from ps2stream.store.places import DataDirectory
from ps2stream.store.snapshots import MANIFEST, SnapshotKey, SnapshotStore
from tests.sim.disk import PowerCut, SimDisk
from tests.support.updates import insert, packed, query_rows

KEY = SnapshotKey(11, 22, 0, 1)
FOLDER = Path("worker-0")


def yes() -> bool:
    return True


def arrays(seed: int = 1) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        "table": rng.integers(0, 2**64, (5, 8), np.uint64),
        "none": np.zeros((2, 0), np.int64),
        "slots": rng.random((3, 8)),
        "general": rng.integers(0, 2, 13, np.uint8),
        "left": rng.integers(0, 9, 7, np.uint32),
    }


def same(found: tuple[int, dict[str, Array]] | None, lsn: int, want: dict[str, Array]) -> bool:
    if found is None or found[0] != lsn or found[1].keys() != want.keys():
        return False
    return all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(found[1].values(), want.values(), strict=True)
    )


def written(disk: SimDisk, lsn: int = 7, seed: int = 1, stamp: str = "1.1") -> SnapshotStore:
    kept = SnapshotStore(FOLDER, disk)
    kept.write(KEY, lsn, arrays(seed), stamp, yes)
    return kept


def test_what_was_written_last_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(snapshots, "SLICE", 100)
    kept = SnapshotStore(tmp_path / "a" / "b")
    assert kept.read(KEY) is None
    for lsn in (3, 9):
        kept.write(KEY, lsn, arrays(lsn), f"1.{lsn}", yes)
        found = kept.read(KEY)
        assert same(found, lsn, arrays(lsn))
        assert found is not None
        assert all(a.ctypes.data % 64 == 0 and a.flags.writeable for a in found[1].values())
    assert sorted(p.name for p in (tmp_path / "a" / "b").iterdir()) == [
        "arrays.1.9", "lock", MANIFEST,
    ]  # fmt: skip
    with pytest.raises(DataDirectoryError, match="in use"):
        SnapshotStore(tmp_path / "a" / "b")
    kept.close()
    kept = SnapshotStore(tmp_path / "a" / "b")
    assert same(kept.read(KEY), 9, arrays(9))
    kept.close()


@pytest.mark.parametrize("route", [22, 33])
def test_one_counts_under_the_plan_of_the_start_and_under_that_which_served(route: int) -> None:
    disk = SimDisk(Random(1))
    kept = SnapshotStore(FOLDER, disk)
    kept.write(KEY._replace(serving=33), 7, arrays(), "1.1", yes)
    assert same(kept.read(KEY._replace(route=route)), 7, arrays())
    assert kept.read(KEY._replace(route=44)) is None


@pytest.mark.parametrize("field", SnapshotKey._fields[:4])
def test_one_of_another_key_is_removed(field: str) -> None:
    disk = SimDisk(Random(1))
    kept = written(disk)
    assert kept.read(KEY._replace(**{field: 99})) is None
    assert disk.contents(FOLDER) == {}


def test_one_of_another_format_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = written(SimDisk(Random(1)))
    monkeypatch.setattr(snapshots, "FORMAT", 2)
    assert kept.read(KEY) is None


def damaged(change: Callable[[bytearray], None], name: str) -> tuple[int, dict[str, Array]] | None:
    disk = SimDisk(Random(1))
    kept = written(disk)
    data = bytearray(disk.contents(FOLDER)[name])
    change(data)
    disk.put(FOLDER / name, bytes(data))
    found = kept.read(KEY)
    assert found is not None or disk.contents(FOLDER) == {}
    return found


@pytest.mark.parametrize("name", [MANIFEST, "arrays.1.1"])
def test_no_flipped_bit_is_taken_for_what_was_written(name: str) -> None:
    size = len(written_bytes()[name])
    harmless = 0
    for at in range(size):

        def flip(data: bytearray, at: int = at) -> None:
            data[at] ^= 1 << at % 8

        found = damaged(flip, name)
        assert found is None or same(found, 7, arrays())
        harmless += found is not None
    padding = sum(-a.nbytes % 64 for a in arrays().values())
    assert harmless == (padding if name != MANIFEST else 0)


@pytest.mark.parametrize("name", [MANIFEST, "arrays.1.1"])
def test_what_is_cut_off_or_missing_is_nothing(name: str) -> None:
    size = len(written_bytes()[name])
    last = 64 - arrays()["left"].nbytes if name != MANIFEST else 0  # padding
    for left in range(size - last):
        assert damaged(lambda data, left=left: data.__delitem__(slice(left, None)), name) is None  # type: ignore[misc]
    disk = SimDisk(Random(1))
    kept = written(disk)
    disk.put(FOLDER / name, None)
    assert kept.read(KEY) is None
    assert disk.contents(FOLDER) == {}


def written_bytes() -> dict[str, bytes]:
    disk = SimDisk(Random(1))
    written(disk)
    return disk.contents(FOLDER)


@pytest.mark.takes_turns
@pytest.mark.parametrize("power", [False, True])
def test_a_write_that_ends_in_the_middle_leaves_one_or_the_other_or_none(power: bool) -> None:
    seen = set()
    for seed in range(60):
        for fuse in range(14):
            disk = SimDisk(Random(seed))
            kept = written(disk, 7, 1)
            disk.fuse = fuse
            try:
                kept.write(KEY, 8, arrays(2), "1.2", yes)
            except PowerCut:
                pass
            else:
                assert fuse > 5
            disk.crash() if power else disk.kill()
            again = SnapshotStore(FOLDER, disk)
            found = again.read(KEY)
            old, new = same(found, 7, arrays(1)), same(found, 8, arrays(2))
            assert old or new or (found is None and power)
            seen.add((old, new))
            again.write(KEY, 9, arrays(3), "2.1", yes)
            assert same(again.read(KEY), 9, arrays(3))
    assert seen >= {(True, False), (False, True)}


def test_a_disk_that_is_full_or_fails_leaves_what_was_there() -> None:
    for fault in ("full", "fail_sync"):
        disk = SimDisk(Random(1))
        kept = written(disk)
        setattr(disk, fault, True)
        with pytest.raises(OSError, match=r"."):
            kept.write(KEY, 8, arrays(2), "1.2", yes)
        setattr(disk, fault, False)
        assert len(disk.contents(FOLDER)) == 2, "and takes no room"
        assert same(kept.read(KEY), 7, arrays())


def test_who_may_have_been_replaced_writes_nothing() -> None:
    disk = SimDisk(Random(1))
    kept = written(disk)
    before = disk.contents(FOLDER)
    assert kept.write(KEY, 8, arrays(2), "1.2", lambda: False) == 0
    assert disk.contents(FOLDER) == before


def test_a_ledger_that_ends_earlier_removes_what_goes_beyond_it(tmp_path: Path) -> None:
    place = DataDirectory(tmp_path)
    ledger = place.open_ledger("{}")
    rows = packed(query_rows([insert("a"), insert("b"), insert("c")], 1))
    ledger.commit(LedgerChange(batch=LedgerBatch(1, 3, 0, 0, 0, rows)))
    ledger.close()
    for index, lsn in enumerate((2, 3, 4, 5)):
        kept = place.open_snapshots(f"worker-{index}")
        assert kept is not None
        kept.write(KEY, lsn, arrays(), "1.1", yes)
        kept.close()
    (tmp_path / "snapshots" / "worker-3" / MANIFEST).write_bytes(b"nonsense")
    place.open_ledger("{}", again=True).close()  # others follow it: nothing happens
    assert len(list(tmp_path.glob(f"snapshots/*/{MANIFEST}"))) == 4
    place.open_ledger("{}").close()
    left = sorted(p.parent.name for p in tmp_path.glob(f"snapshots/*/{MANIFEST}"))
    assert left == ["worker-0", "worker-1"]
    assert place.logs() == []
