"""Temporary folders: for their owner alone, and gone after a kill."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ps2stream.cluster.private_folder import OWNER, PREFIX, PrivateFolder, end_writers, find_writers

MAKE = """
import sys, time
from pathlib import Path
from ps2stream.cluster.private_folder import PrivateFolder
made = PrivateFolder(Path(sys.argv[1]))
print(made.path, flush=True)
time.sleep(600)
"""
WRITE = "import time; print('here', flush=True); time.sleep(600)"
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user")


@pytest.fixture
def base() -> Iterator[Path]:
    """As /tmp is: everybody's, with the sticky bit."""
    with tempfile.TemporaryDirectory(dir="/tmp") as found:
        path = Path(found)
        path.chmod(0o1777)
        yield path


def make_in_another_process(base: Path) -> tuple[subprocess.Popen[str], Path]:
    owner = subprocess.Popen(
        [sys.executable, "-c", MAKE, str(base)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    return owner, Path(owner.stdout.readline().strip())


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def try_as_nobody(script: str, *words: str) -> int:
    """The exit code of a shell script that another user runs."""
    return subprocess.run(
        ["/bin/sh", "-c", script, "sh", *words], user=NOBODY, group=NOBODY, extra_groups=[],
        stderr=subprocess.DEVNULL, check=False,
    ).returncode  # fmt: skip


def test_a_folder_left_behind_goes_with_what_runs_in_it_and_a_live_one_stays(base: Path) -> None:
    live, of_live = make_in_another_process(base)
    killed, left = make_in_another_process(base)
    with (left / "out").open("w") as out:
        daemon = subprocess.Popen([sys.executable, "-c", WRITE], stdout=out, start_new_session=True)
    reader = subprocess.Popen(["tail", "-f", str(left / "out")], stdout=subprocess.PIPE)
    try:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"here\n"
        assert find_writers(left) == {daemon.pid}
        end(killed)
        PrivateFolder(base).remove()
        assert list(base.iterdir()) == [of_live]
        assert daemon.wait(10) == -9
        assert reader.poll() is None  # who reads along is left alone
    finally:
        end(live)
        for process in (daemon, reader):
            process.kill()
            process.communicate()
    PrivateFolder(base).remove()
    assert list(base.iterdir()) == []


def test_what_was_not_made_here_is_never_removed(base: Path, tmp_path: Path) -> None:
    mine = base / f"{PREFIX}backup"
    mine.mkdir()
    target = tmp_path / "target"
    target.mkdir()
    (target / OWNER).write_text("1\n")
    (base / f"{PREFIX}link").symlink_to(target)
    (base / f"{PREFIX}file").write_text("")
    PrivateFolder(base).remove()
    assert {path.name for path in base.iterdir()} == {
        f"{PREFIX}{n}" for n in ("backup", "link", "file")
    }
    assert (target / OWNER).exists()


def test_a_socket_fits_also_where_temporary_files_have_a_long_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 30)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with PrivateFolder(holds_sockets=True) as short, PrivateFolder() as other:
        assert len(str(short.path)) < 40
        assert stat.S_IMODE(short.path.stat().st_mode) == 0o700
        assert other.path.parent == long


def test_a_folder_that_everybody_may_replace_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    PrivateFolder().remove()
    assert "chmod +t" in caplog.text
    caplog.clear()
    tmp_path.chmod(0o1777)
    PrivateFolder().remove()
    assert not caplog.text


@as_root
def test_another_user_reaches_and_replaces_nothing_and_leaves_no_trap(base: Path) -> None:
    with PrivateFolder(base) as folder:
        inside = folder.path / "ray"
        inside.mkdir()
        inside.chmod(0o777)  # as Ray does
        (inside / "socket").write_text("mine")
        (inside / "socket").chmod(0o666)
        for attack in (
            'ls "$1"',
            'cat "$1/ray/socket"',
            'echo theirs > "$1/ray/socket"',
            'mv "$1/ray/socket" "$1/ray/moved"',
            'ln -s /etc/passwd "$1/ray/link"',
            'mv "$1" "$1.moved"',
            'rm -rf "$1"',
        ):
            assert try_as_nobody(attack, str(folder.path)) != 0, attack
        assert (inside / "socket").read_text() == "mine"
    with tempfile.TemporaryDirectory(dir="/tmp") as victim:
        kept = Path(victim) / OWNER
        kept.write_text("1\n")
        trap = 'ln -s "$2" "$1trap" && mkdir "$1own" && touch "$1own/$3"'
        assert try_as_nobody(trap, str(base / PREFIX), victim, OWNER) == 0
        PrivateFolder(base).remove()
        assert kept.exists()
        assert (base / f"{PREFIX}own").is_dir()  # theirs to remove


def test_a_process_that_writes_into_a_folder_is_gone_on_return(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out:
        daemon = subprocess.Popen([sys.executable, "-c", WRITE], stderr=out)
    os.kill(daemon.pid, 19)  # also one that is stopped
    assert end_writers(tmp_path)
    assert daemon.wait(1) == -9
