"""A data directory is its owner's alone, and what may not be read is not called damaged."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ps2stream.errors import DataDirectoryError
from ps2stream.store import ledger, places
from ps2stream.store.access import explain_denial
from ps2stream.store.identity import LogIdentity
from ps2stream.store.ledger import Ledger
from ps2stream.store.segments import SegmentLog

ANALYSIS = "{}"
NOBODY = 65534


def use(folder: Path) -> None:
    """What a service makes in its directory."""
    place = places.DataDirectory(folder)
    with Ledger.open(folder, ANALYSIS), SegmentLog.open(folder / "objects-0") as log:
        log.append(b"x")
        log.sync()
        place.identify_log("objects-0", LogIdentity(1, 2, 3, 4), log)
        snapshots = place.open_snapshots("worker-0")
        assert snapshots is not None
        snapshots.close()
        with pytest.raises(DataDirectoryError, match="in use"):
            place.open_tokens()
    with place.open_tokens() as tokens:
        tokens.keep_tokens(())


def modes(folder: Path) -> dict[int, set[str]]:
    """Names below the folder, and itself, by permissions."""
    found: dict[int, set[str]] = {}
    for path in (folder, *folder.rglob("*")):
        found.setdefault(stat.S_IMODE(path.stat().st_mode), set()).add(path.name)
    return found


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextlib.contextmanager
def another_user() -> Iterator[None]:
    """Nobody, where the tests run as root; else the same user, whom modes stop as well."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_path(tmp_path: Path) -> Path:
    """A folder whose parents everybody may enter."""
    for parent in (tmp_path, *tmp_path.parents):
        if not parent.stat().st_mode & stat.S_IXOTH:
            with contextlib.suppress(PermissionError):  # those of pytest
                parent.chmod(parent.stat().st_mode | 0o755)
    return tmp_path


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_all_that_is_made_is_the_owners_alone(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        use(tmp_path / "data")
    found = modes(tmp_path / "data")
    assert found.keys() == {0o700, 0o600}
    assert {"data", "objects-0", "snapshots", "worker-0"} == found[0o700]
    assert {"ledger.db", "mark", "lock", "tokens", "identity"} <= found[0o600]


def test_a_directory_of_an_older_version_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "data"
    use(folder)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    use(folder)
    assert modes(folder).keys() == {0o700, 0o600}
    assert f"{folder} was open to other users (mode 0755); its mode is now 0700" in caplog.text


def test_a_directory_that_others_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    tmp_path.chmod(0o755)
    with pytest.raises(DataDirectoryError, match=r"mode 0755\) and contains .* letter"):
        Ledger.open(tmp_path, ANALYSIS)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_an_owner_is_advised_to_change_the_mode(tmp_path: Path) -> None:
    denied = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    assert explain_denial(tmp_path, denied).endswith("; run chmod u+rwX on it")
    if os.geteuid() == 0:
        with another_user():
            assert "; run as its owner, or chown" in explain_denial(tmp_path, denied)


@pytest.mark.parametrize("closed", [0o000, 0o500])
def test_who_may_not_write_reads_so(open_path: Path, closed: int) -> None:
    if closed and os.geteuid():
        pytest.skip("there is no other user here, and an owner's folder is closed to others again")
    folder = open_path / "data"
    use(folder)
    shutil.copytree(folder, open_path / "before")
    for path in folder.rglob("*"):
        path.chmod(closed if path.is_dir() else closed & 0o444)
    folder.chmod(closed | 0o055 * bool(closed))
    for attempt in (
        lambda: Ledger.open(folder, ANALYSIS),
        lambda: SegmentLog.open(folder / "objects-0"),
        lambda: ledger.recorded(folder, "analysis"),
    ):
        with another_user(), pytest.raises(DataDirectoryError) as caught:
            attempt()
        assert "damaged" not in str(caught.value)
        assert re.search(r"user \d+ may not read and write .* \(owner \d+, mode", str(caught.value))
    folder.chmod(0o700)
    (folder / "objects-0").chmod(0o700)
    for path in folder.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    use(folder)


def test_a_read_only_file_system_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(tmp_path / "data")
    real = os.statvfs(tmp_path)
    values = list(real)
    values[8] |= os.ST_RDONLY
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(values))
    (tmp_path / "data" / "ledger.db-wal").mkdir()  # SQLite cannot open it, as on such a system
    with pytest.raises(DataDirectoryError, match="the file system is read-only; mount it"):
        ledger.recorded(tmp_path / "data", "analysis")
