"""Withdrawn objects: neither new queries nor an archive's readers see them, or after a restart."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from pathlib import Path

import pytest

from ps2stream.archive.reading import read_batches
from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import InvalidArgument

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
