"""Withdrawn objects: neither new queries nor an archive's readers see them, or after a restart."""

from __future__ import annotations

import time
from datetime import timedelta
from itertools import islice
from pathlib import Path

import pytest

from ps2stream.archive.departed import note_ended
from ps2stream.archive.layout import dispatcher_folder, read_mark
from ps2stream.archive.reading import read_batches
from ps2stream.client.client import Client
from ps2stream.cluster.archive_writer import ArchiveWriter
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import InvalidArgument
from ps2stream.store.directory import replace_file
from tests.support.scaled_dispatchers import joined

HERE = {"lon": 8.5, "lat": 47.4, "until": timedelta(hours=1)}


def archived_ids(path: Path) -> list[str]:
    parts = read_batches(str(path), ["id"])
    return sorted(row["id"] for part in parts for row in part.to_pylist())


def found_by(client: Client, name: str, count: int) -> list[str]:
    """What a new query with retro finds, of a session of its own, before it finds what is new."""
    client.insert(name, "storm", session=name, retro=True)
    client.publish([{"id": f"end of {name}", "lon": 0, "lat": 0, "text": "storm"}])
    with client.subscribe(name) as matches:
        return sorted(str(match.object_id) for match in islice(matches, count + 1))


def test_withdrawn_objects_are_gone_and_later_ones_of_the_id_are_there(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    settings = Settings(
        runtime="local", port=0, workers=1, dispatchers=2, data_dir=tmp_path / "data",
        archive=archive,
    )  # fmt: skip
    with start(settings) as service:
        first, second = (Client(target, timeout=90) for target in service.targets)
        with first, second:
            for client, ids in ((first, "ab"), (second, "bc")):
                client.publish([HERE | {"id": id, "text": "storm"} for id in ids])
            assert found_by(first, "early", 4) == ["a", "b", "b", "c", "end of early"]
            second.withdraw(["b", "unknown"])
            second.withdraw(["b"])
            assert found_by(first, "late", 2) == ["a", "c", "end of late"]
            first.publish([HERE | {"id": "b", "text": "storm"}])
            assert found_by(second, "later", 3) == ["a", "b", "c", "end of later"]
            for wrong in ([""], ["x" * 129], ["nul\0"]):
                with pytest.raises(InvalidArgument, match=r"ids\[0\]"):
                    first.withdraw(wrong)
    ends = ["end of early", "end of late", "end of later"]
    assert archived_ids(archive) == ["a", "b", "c", *ends]
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        assert found_by(client, "restarted", 3) == ["a", "b", "c", "end of restarted"]


def settle(path: Path, wanted: list[str]) -> list[str]:
    """What readers of the archive find, as soon as it is this; within a minute by all means."""
    deadline = time.monotonic() + 60
    while (found := archived_ids(path)) != wanted and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def publish_at(service: RunningService, number: int, *ids: str) -> int:
    """Returns the LSN as of which they are matched."""
    with Client(service.targets[number], timeout=90) as client:
        return client.publish([HERE | {"id": id, "text": "storm"} for id in ids]).lsn


def test_an_archive_leaves_out_what_is_withdrawn_after_its_dispatcher_left(
    tmp_path: Path,
) -> None:
    archive = tmp_path / "archive"
    settings = Settings(
        runtime="local", port=0, workers=1, data_dir=tmp_path / "data", archive=archive
    )
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        joined(service, client, 3)
        for number, ids in enumerate(("ad", "ab", "ac")):
            publish_at(service, number, *ids)
        joined(service, client, 1)
        assert settle(archive, ["a", "a", "b", "c"]) == ["a", "a", "b", "c"]  # of those that left
        client.withdraw(["a", "d"])
        assert settle(archive, ["b", "c"]) == ["b", "c"]
        joined(service, client, 2)
        publish_at(service, 1, "a", "e")  # which are others
        client.withdraw(["c"])
    assert archived_ids(archive) == ["a", "b", "e"]
    three = settings.model_copy(update={"dispatchers": 3})
    with start(three) as service, Client(service.targets[0], timeout=90) as client:
        client.withdraw(["b"])
        publish_at(service, 2, "c")
    assert archived_ids(archive) == ["a", "c", "e"]


def test_an_archive_leaves_out_what_is_withdrawn_after_a_start_with_fewer(tmp_path: Path) -> None:
    """What the archive lacked of the log of one that is not there any more is there, too."""
    archive = tmp_path / "archive"
    two = Settings(
        runtime="local", port=0, workers=1, dispatchers=2, mergers=2, data_dir=tmp_path / "data",
        archive=archive,
    )  # fmt: skip
    one = two.model_copy(update={"dispatchers": 1})
    with start(two) as service, Client(service.targets[0], timeout=90) as client:
        publish_at(service, 1, "a")
        client.publish([HERE | {"id": "b", "text": "storm"}])
    with pytest.MonkeyPatch.context() as patch:  # what comes is not archived: all are killed
        patch.setattr(ArchiveWriter, "look", lambda self, is_last=False: None)
        with start(two) as service, Client(service.targets[0], timeout=90) as client:
            before = publish_at(service, 1, "c", "d", "e")
            client.withdraw(["c"])
    assert archived_ids(archive) == ["a", "b"]
    left = dispatcher_folder(archive, 1)
    mark = read_mark(left)
    assert mark is not None
    # As if it had been about to leave, noted the end, and taken the rest in before it was killed.
    note_ended(left, mark.point, replace_file)
    with start(one) as service, Client(service.targets[0], timeout=90) as client:
        assert archived_ids(archive)[:4] == ["a", "b", "d", "e"]
        between = publish_at(service, 0, "f")
        assert client.scale_mergers().mergers == 2
        client.withdraw(["a", "d", "f"])
        assert settle(archive, ["b", "e"]) == ["b", "e"]
    with start(two) as service:
        assert before < between < publish_at(service, 1, "a")
    assert archived_ids(archive) == ["a", "b", "e"]
