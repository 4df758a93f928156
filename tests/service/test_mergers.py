"""Sessions of a running service that move to other mergers: the calls, the command, a restart."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ps2stream.client.client import Client
from ps2stream.client.scaling import MergerScale
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import DataDirectoryError, FailedPrecondition, InvalidArgument
from ps2stream.protocol.addresses import nothing
from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.ports import LedgerChange
from ps2stream.protocol.rows import no_queries
from ps2stream.protocol.session_map import SessionMap, SessionMaps
from ps2stream.sequencer.feed import packed
from ps2stream.store.backup import back_up, restore
from ps2stream.store.ledger import Ledger, recorded
from tests.support.moving import lines, run
from tests.support.scaled_mergers import (
    SESSIONS,
    NumberedReader,
    move_and_restart,
    publish,
    scaled,
    subscribe,
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        runtime="local", port=0, hot="off", adjust="off", dispatchers=2, data_dir=tmp_path / "data"
    )


@pytest.fixture
def service(settings: Settings) -> Iterator[RunningService]:
    with start(settings) as running:
        yield running


@pytest.fixture
def client(service: RunningService) -> Iterator[Client]:
    with Client(service.targets[0], timeout=90) as found:
        yield found


def test_open_streams_go_on_at_other_mergers(service: RunningService, client: Client) -> None:
    subscribe(client)
    steps = (3, 2, 5, 1)
    total = 40 * (len(steps) + 1)
    readers = [NumberedReader(service.targets[i % 2], s, total) for i, s in enumerate(SESSIONS)]
    for reader in readers:
        reader.start()
    publish(client, 0, 40)
    for n, mergers in enumerate(steps, 1):
        publisher = threading.Thread(target=publish, args=(client, 40 * n, 40))
        publisher.start()
        scaled(client, mergers)
        publisher.join()
    for reader in readers:
        reader.check()
    deadline = time.monotonic() + 30
    while [name for name in service.status() if name.startswith("merger")] != ["merger-0"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_matches_that_nobody_has_read_move_too_and_outlast_a_restart(settings: Settings) -> None:
    move_and_restart(lambda: start(settings))


def test_a_number_that_is_in_force_changes_nothing(client: Client) -> None:
    assert client.scale_mergers(1) == MergerScale(1, 0, moving=False)
    found = scaled(client, 2)
    assert client.scale_mergers(2) == found


def test_a_number_out_of_range_is_refused(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="expected 1 to 64 mergers, or 0, got 65"):
        client.scale_mergers(65)


def test_the_command_waits_for_the_sessions(service: RunningService) -> None:
    found = lines(run(service, "scale", "--mergers", "3", "--wait", "--json"))
    assert [line["event"] for line in found] == ["began", "done"]
    assert found[1]["mergers"] == 3
    again = lines(run(service, "scale", "--mergers", "3", "--json"))
    assert [line["event"] for line in again] == ["in_force"]


def test_the_command_wants_one_role(service: RunningService) -> None:
    for options in (
        (),
        ("--mergers", "2", "--workers", "2"),
        ("--mergers", "2", "--dispatchers", "2"),
    ):
        found = run(service, "scale", *options)
        assert found.exit_code == 2
        assert "give one of --workers, --mergers and --dispatchers" in found.output


# --- starts and backups amid a move -------------------------------------------------------------


def stop_amid_a_move(settings: Settings) -> Path:
    """A data directory of a service that was stopped when its sessions began to move from one
    merger to two, each with ten matches."""
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        subscribe(client)
        publish(client, 0, 10)
    folder = Path(settings.data_dir)
    ledger = Ledger.open(folder, recorded(folder, "analysis") or "")
    before, lsn = SessionMap.first(1), ledger.lsn + 1
    record = SessionMaps(before.spread(2, lsn), before).record()
    batch = LedgerBatch(lsn, lsn, 0, 0, 0, packed(no_queries()), nothing(), record)
    ledger.commit(LedgerChange(batch, mergers=2, moves=f"{lsn} moving"))
    ledger.close()
    return folder


def test_a_move_goes_on_after_a_restart_and_is_in_no_backup_before(settings: Settings) -> None:
    folder = stop_amid_a_move(settings)
    copy = folder.parent / "copy"
    with pytest.raises(FailedPrecondition, match="sessions moved between mergers"):
        back_up(folder, copy)
    shutil.rmtree(copy)
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        assert scaled(client, 2).lsn == len(SESSIONS) + 1
        publish(client, 10, 10)
    back_up(folder, copy)
    shutil.rmtree(folder)
    restore(copy, folder)
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        assert client.scale_mergers().mergers == 2
        for session in SESSIONS:
            reader = NumberedReader(service.targets[1], session, 20)
            reader.start()
            reader.check()


def test_a_loss_amid_a_move_is_not_accepted(settings: Settings) -> None:
    folder = stop_amid_a_move(settings)
    shutil.rmtree(folder / "objects-0")
    with pytest.raises(DataDirectoryError, match="objects-0 is missing"):
        start(settings)
    with pytest.raises(DataDirectoryError, match="sessions were moving between mergers"):
        start(settings, accept_loss=True)


def test_a_ledger_from_before_a_move_is_not_accepted(settings: Settings) -> None:
    """By its table, sessions would begin anew at a merger that has none of their numbers."""
    folder = Path(settings.data_dir)
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        subscribe(client)
    older = folder.parent / "older"
    older.mkdir()
    for name in ("ledger.db", "mark"):
        shutil.copy(folder / name, older / name)
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        moved = scaled(client, 2).lsn
    for name in ("ledger.db", "mark"):
        shutil.copy(older / name, folder / name)
    problem = f"matches-1 has sessions that moved between mergers at LSN {moved}"
    with pytest.raises(DataDirectoryError, match=problem):
        start(settings, accept_loss=True)


def test_the_number_of_the_first_start_stays(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    start(settings).stop()
    other = settings.model_copy(update={"mergers": 2})
    other.model_fields_set.add("mergers")
    with start(other) as service, Client(service.targets[0], timeout=90) as client:
        assert "was last used with 1 mergers" in caplog.text
        assert client.scale_mergers().mergers == 1
