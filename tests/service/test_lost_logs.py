"""What is missing in a data directory is refused by name, or told to sessions as a gap."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from ps2stream import Client
from ps2stream.client.matches import Gap, Matches
from ps2stream.cluster.local_service import LocalService
from ps2stream.cluster.log_pairing import make_log
from ps2stream.cluster.logs import ServiceLogs, name_of
from ps2stream.cluster.service import fitted_plan, topology_of
from ps2stream.config import Settings
from ps2stream.errors import DataDirectoryError, Unavailable
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.session_numbers import LEAP
from ps2stream.space.regions import Circle
from ps2stream.store.ledger import recorded
from ps2stream.store.places import DataDirectory
from ps2stream.store.segments import SegmentLog

AREA = Circle(0.0, 0.0, 5.0)
FOUR = ["flood 1", "flood 2", "flood 3", "flood 4"]


def settings(folder: Path) -> Settings:
    return Settings(runtime="local", port=0, workers=1, data_dir=folder, adjust="off")


def start(settings: Settings, accept_loss: bool = False) -> LocalService:
    """As cluster.service.start, without the rehearsal of kernels."""
    return LocalService(settings, topology_of(settings, fitted_plan(settings, None)), accept_loss)


@contextmanager
def serving(folder: Path, accept_loss: bool = False) -> Iterator[Client]:
    with (
        start(settings(folder), accept_loss=accept_loss) as service,
        Client(service.targets[0]) as client,
    ):
        yield client


def publish(client: Client, *texts: str) -> None:
    client.publish([{"id": text, "lon": 0.0, "lat": 0.0, "text": text} for text in texts])


def take(client: Client, until: str, cursor: bytes = b"") -> list[Matches]:
    """The batches of the session until the object of this id has come."""
    found: list[Matches] = []
    with client.subscribe("s", cursor=cursor) as matches:
        for batch in matches.batches():
            found.append(batch)
            if until in [match.object_id for match in batch]:
                break
    return found


def ids(batches: list[Matches]) -> list[str]:
    return [match.object_id for batch in batches for match in batch]


def numbers(batches: list[Matches]) -> list[int]:
    """Of pairs and gaps; they follow on one another."""
    found: list[int] = []
    for batch in batches:
        if batch.gap is not None:
            found += [batch.gap.first, batch.gap.last]
        else:
            found += range(batch.first, batch.last + 1)
    return found


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with four pairs of session s that nobody has taken."""
    folder = tmp_path_factory.mktemp("used") / "data"
    with serving(folder) as client:
        client.insert("q", "flood", AREA, session="s")
        publish(client, *FOUR)
    return folder


@pytest.fixture
def used(once: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    return Path(shutil.copytree(once, tmp_path / "data"))


def test_a_service_that_was_stopped_goes_on(used: Path) -> None:
    for _ in range(2):
        with serving(used) as client:
            publish(client, "flood 5")
    with serving(used) as client:
        found = take(client, "flood 5")
        assert ids(found)[:5] == [*FOUR, "flood 5"]
        assert numbers(found)[:5] == [1, 2, 3, 4, 5]


def test_a_lost_match_log_is_refused_and_then_a_gap(used: Path) -> None:
    shutil.rmtree(used / "matches-0")
    with pytest.raises(DataDirectoryError, match=r"matches-0 is missing.*--accept-loss"):
        start(settings(used))
    assert not (used / "matches-0").exists()
    with serving(used, accept_loss=True) as client:
        publish(client, "flood 5")
        found = take(client, "flood 5")
        assert found[0].gap == Gap(1, LEAP, 0)
        assert ids(found) == ["flood 5"]
        assert numbers(found[1:]) == [LEAP + 1]
    with serving(used) as client:  # and it does not have to be accepted again
        publish(client, "flood 6")
        assert numbers(take(client, "flood 6"))[-1] == LEAP + 2


def test_a_subscriber_that_had_read_on_learns_of_the_gap(used: Path) -> None:
    with serving(used) as client, client.subscribe("s") as matches:
        assert next(iter(matches)).object_id == "flood 1"
        cursor = matches.cursor
    shutil.rmtree(used / "matches-0")
    with serving(used, accept_loss=True) as client:
        publish(client, "flood 5")
        found = take(client, "flood 5", cursor)
        assert found[0].gap == Gap(2, LEAP, 0)
        assert ids(found) == ["flood 5"]


def test_an_older_match_log_is_refused_and_then_gives_no_number_again(
    used: Path, tmp_path: Path
) -> None:
    shutil.copytree(used / "matches-0", tmp_path / "old")
    with serving(used) as client:
        publish(client, "flood 5")
        assert numbers(take(client, "flood 5")) == [1, 2, 3, 4, 5]
    with serving(used):
        pass  # the ledger notes how far the logs have come
    shutil.rmtree(used / "matches-0")
    shutil.copytree(tmp_path / "old", used / "matches-0")
    with pytest.raises(DataDirectoryError, match=r"matches-0 ends at position \d+; the ledger"):
        start(settings(used))
    with serving(used, accept_loss=True) as client:
        publish(client, "flood 6")
        found = take(client, "flood 6")
        assert ids(found) == [*FOUR, "flood 6"]
        assert numbers(found) == [1, 2, 3, 4, 5, 4 + LEAP, 5 + LEAP]
        assert [batch.gap.count for batch in found if batch.gap] == [0]


def test_a_lost_object_log_is_refused_and_then_a_gap(used: Path) -> None:
    shutil.rmtree(used / "objects-0")
    with pytest.raises(DataDirectoryError, match="objects-0 is missing"):
        start(settings(used))
    with serving(used, accept_loss=True) as client:
        publish(client, "flood 5")
        found = take(client, "flood 5")
        assert ids(found) == [*FOUR, "flood 5"]
        assert numbers(found) == [1, 2, 3, 4, 5, 4 + LEAP, 5 + LEAP]


@pytest.mark.parametrize("mark", ["kept", "lost"])
def test_an_older_ledger_is_refused_and_then_a_gap(used: Path, tmp_path: Path, mark: str) -> None:
    names = ["ledger.db", *(["mark"] if mark == "lost" else [])]
    for name in names:
        shutil.copy(used / name, tmp_path / name)
    with serving(used) as client:
        client.insert("p", "storm", AREA, session="s")
        publish(client, "storm 5")
    for name in names:
        shutil.copy(tmp_path / name, used / name)
    if mark == "kept":
        with pytest.raises(DataDirectoryError, match="mark"):
            start(settings(used))
        return
    with pytest.raises(DataDirectoryError, match="the ledger is older than the log"):
        start(settings(used))
    with serving(used, accept_loss=True) as client:
        assert client.insert("r", "storm", AREA, session="s") == 3
        publish(client, "flood 6")
        found = take(client, "flood 6")
        assert found[0].gap == Gap(1, 5, 5)
        assert ids(found) == ["flood 6"]
        assert numbers(found)[-1] == 6


@pytest.mark.parametrize("producer", ["", "p"])
def test_an_older_ledger_of_the_same_start_is_known_by_the_objects(
    used: Path, tmp_path: Path, producer: str
) -> None:
    with serving(used) as client:
        for name in ("ledger.db", "ledger.db-wal", "mark"):
            shutil.copy(used / name, tmp_path / name)
        client.insert("p", "storm", AREA, session="s")
        storm = [{"id": "storm 5", "lon": 0.0, "lat": 0.0, "text": "storm 5"}]
        client.publish(storm, producer=producer, seq=int(bool(producer)))
    for name in ("ledger.db", "ledger.db-wal", "mark"):
        shutil.copy(tmp_path / name, used / name)
    problem = "objects-0: .*it ends at LSN 1, but the log contains LSN 2"
    with pytest.raises(DataDirectoryError, match=problem):
        start(settings(used))


def test_logs_of_another_directory_are_refused(used: Path, tmp_path: Path) -> None:
    with serving(tmp_path / "other"):
        pass
    for name in ("matches-0", "objects-0"):
        shutil.rmtree(tmp_path / "other" / name)
        shutil.copytree(used / name, tmp_path / "other" / name)
    with pytest.raises(DataDirectoryError, match="matches-0: it belongs to another ledger"):
        start(settings(tmp_path / "other"))


def test_logs_without_their_ledger_are_refused(used: Path) -> None:
    for name in ("ledger.db", "mark"):
        (used / name).unlink()
    with pytest.raises(DataDirectoryError, match="objects-0: it belongs to another ledger"):
        start(settings(used))
    with serving(used, accept_loss=True) as client:
        assert client.insert("q", "flood", AREA, session="s") > 1


def test_a_directory_of_an_older_version_is_taken_over(used: Path) -> None:
    db = apsw.Connection(str(used / "ledger.db"))
    db.execute("DELETE FROM meta WHERE key = 'logs'")
    db.close()
    for name in ("matches-0", "objects-0"):
        (used / name / "identity").unlink()
    with serving(used) as client:
        publish(client, "flood 5")
        assert ids(take(client, "flood 5")) == [*FOUR, "flood 5"]
    shutil.rmtree(used / "matches-0")
    with pytest.raises(DataDirectoryError, match="matches-0 is missing"):
        start(settings(used))


def test_an_older_ledger_is_known_by_the_starts_of_the_service(used: Path, tmp_path: Path) -> None:
    for name in ("ledger.db", "mark"):
        shutil.copy(used / name, tmp_path / name)
    with serving(used) as client:
        client.insert("p", "storm", AREA, session="s")  # and no object after it
    for name in ("ledger.db", "mark"):
        shutil.copy(tmp_path / name, used / name)
    with pytest.raises(DataDirectoryError, match="it records 1 starts of the service, but the log"):
        start(settings(used))


def wait_for_problems(client: Client, *wanted: str) -> None:
    """Returns once the status has problems that begin so, of something that was removed, and no
    others; a census every two seconds finds them."""
    give_up = time.monotonic() + 20
    while True:
        found = client.status()["problems"]
        if [line.partition(": ")[0] for line in found if "was removed" in line] == list(wanted):
            return
        assert time.monotonic() < give_up, found
        time.sleep(0.1)


def test_what_is_moved_away_is_a_problem_while_the_service_runs(used: Path, tmp_path: Path) -> None:
    """If a log is to be written meanwhile, it takes nothing until a restart, and says so at last;
    that a log heals of which nobody wanted anything is tested in tests/unit/store."""
    away = tmp_path / "away"
    with contextlib.suppress(Unavailable), serving(used) as client:
        wait_for_problems(client)
        used.rename(away)
        wait_for_problems(
            client,
            "dispatcher-0 cannot write its log",
            "sequencer-0 cannot write its ledger",
            "merger-0 cannot write its log",
        )
        away.rename(used)
    with serving(used) as client:
        wait_for_problems(client)
        publish(client, "flood 5")
        client.insert("p", "storm", AREA, session="s")
    with serving(used) as client:
        assert ids(take(client, "flood 5"))[-1] == "flood 5"
        assert client.get("p") is not None


def test_an_actor_that_joins_again_does_not_begin_its_log_anew(used: Path) -> None:
    place = DataDirectory(used)
    with contextlib.closing(place.open_ledger(recorded(used, "analysis") or "")) as store:
        for owner in (Address("dispatcher", 1), Address("merger", 1)):
            name = name_of(owner)
            for _ in range(2):
                make_log(ServiceLogs(place), store, owner)
            shutil.rmtree(used / name)
            with pytest.raises(DataDirectoryError, match=f"{name} is missing"):
                make_log(ServiceLogs(place), store, owner)
            SegmentLog.open(used / name).close()
            with pytest.raises(DataDirectoryError, match=f"{name} is another log"):
                make_log(ServiceLogs(place), store, owner)
