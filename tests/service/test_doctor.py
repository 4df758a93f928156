"""`ps2stream doctor`: what it finds, and its exit code."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.cluster.doctor_checks import check_shared_memory
from ps2stream.cluster.local_service import LocalService
from ps2stream.cluster.service import fitted_plan, topology_of
from ps2stream.config import Settings
from ps2stream.errors import DataDirectoryError
from ps2stream.store.access import make_private
from ps2stream.store.backup import back_up, restore

Found = dict[str, tuple[str, str, str]]


def examine(folder: Path) -> tuple[int, Found]:
    """Exit code; verdict, finding and advice of each check."""
    called = CliRunner().invoke(main, ["doctor", "--json", "--data-dir", str(folder)])
    lines = map(json.loads, called.output.splitlines())
    return called.exit_code, {o["what"]: (o["verdict"], o["found"], o["advice"]) for o in lines}


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalService:
    monkeypatch.setenv("PS2STREAM_PORT", "0")
    settings = Settings(runtime="local", port=0, workers=1, data_dir=tmp_path / "data")
    return LocalService(settings, topology_of(settings, fitted_plan(settings, None)))


def test_nothing_is_wrong_beside_a_service_or_without(
    service: LocalService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    with service:
        before = sorted(path.name for path in folder.rglob("*"))
        code, found = examine(folder)
        assert sorted(path.name for path in folder.rglob("*")) == before
        port = service.targets[0].rpartition(":")[2]
        monkeypatch.setenv("PS2STREAM_PORT", port)
        assert examine(folder)[1][f"port {port}"] == ("ok", "in use, and the service runs", "")
        monkeypatch.setenv("PS2STREAM_PORT", "0")
    beside = code, found
    for code, found in (beside, examine(folder), examine(tmp_path / "none")):
        assert code == 0, found
        assert {what for what, (verdict, _, _) in found.items() if verdict == "fail"} == set()
        assert {"python", "packages", "open files", "java", "disk"} <= found.keys()
    found = examine(folder)[1]
    assert found["ledger"][:2] == ("ok", "format 3, up to LSN 0")
    assert found["logs"][:2] == ("ok", "matches-0, objects-0: consistent with the ledger")
    assert found["data directory"][0] == found["clock"][0] == "ok"


def test_what_is_wrong_is_named_with_what_to_do(
    service: LocalService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    service.stop()
    shutil.rmtree(folder / "matches-0")
    folder.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("PS2STREAM_PORT", str(port))
        code, found = examine(folder)
    assert code == 1
    assert found[f"port {port}"][0] == "fail"
    assert found["logs"][:2] == (
        "fail", "matches-0 is missing; the ledger refers to it up to position 0",
    )  # fmt: skip
    assert "--accept-loss" in found["logs"][2]
    assert found["data directory"][0] == "warn"
    assert "chmod 700" in found["data directory"][2]
    (folder / "ledger.db").write_bytes(b"nothing of the kind" * 999)
    assert examine(folder)[1]["ledger"][0] == "fail"
    (folder / "ledger.db").unlink()
    assert examine(folder)[1]["ledger"][:2] == (
        "fail", "ledger.db is missing, but the file `mark` records what it had acknowledged",
    )  # fmt: skip


def test_a_directory_before_its_first_start(service: LocalService, tmp_path: Path) -> None:
    """An empty one, one that was restored, and one that `serve` refuses."""
    service.stop()
    empty, restored = tmp_path / "empty", tmp_path / "restored"
    empty.mkdir(mode=0o700)
    back_up(tmp_path / "data", tmp_path / "backup")
    restore(tmp_path / "backup", restored)
    for folder in (empty, restored):
        code, found = examine(folder)
        assert (code, found["data directory"][0]) == (0, "ok"), found
    (empty / "thesis.txt").touch()
    empty.chmod(0o755)
    code, found = examine(empty)
    assert code == 1
    assert "contains files of other users, such as thesis.txt" in found["data directory"][1]
    with pytest.raises(DataDirectoryError, match="as thesis"):
        make_private(empty)


def test_shared_memory_that_is_not_there(tmp_path: Path) -> None:
    assert check_shared_memory(tmp_path / "none").verdict == "fail"
