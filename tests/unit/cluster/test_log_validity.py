"""A service that starts with fewer dispatchers tells new queries that objects may be missing."""

from __future__ import annotations

import time
from pathlib import Path

from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings

POST = {"lon": 8.5, "lat": 47.4, "text": "flood"}


def insert_and_read(target: str, name: str) -> tuple[list[str], bool]:
    """Inserts a query with retro; returns the ids of the objects that its session receives until
    the marker, and whether it was told of a gap."""
    ids: list[str] = []
    told = False
    with Client(target, timeout=60) as client:
        client.insert(name, "flood", retro=True, session=name)
        client.publish([POST | {"id": "marker"}])
        with client.subscribe(name) as matches:
            for batch in matches.batches():
                told |= batch.gap is not None
                ids += [match.object_id for match in batch]
                if "marker" in ids:
                    return ids, told
    raise AssertionError("the stream ended")


def test_objects_of_a_dispatcher_that_is_left_out_are_told_as_a_gap(tmp_path: Path) -> None:
    settings = Settings(runtime="local", port=0, workers=1, dispatchers=2, data_dir=tmp_path)
    until = round(time.time() * 1000) + 3_600_000
    with start(settings) as service:
        for number, target in enumerate(service.targets):
            with Client(target, timeout=60) as client:
                client.publish([POST | {"id": f"o{number}", "until": until}])
        deadline = time.monotonic() + 60
        while any(found.get("in_flight") for found in service.status().values()):
            assert time.monotonic() < deadline
    fewer = settings.model_copy(update={"dispatchers": 1})
    with start(fewer) as service:
        assert insert_and_read(service.targets[0], "first") == (["o0", "marker"], True)
    with start(fewer) as service:  # which reads the note from the log
        assert insert_and_read(service.targets[0], "second") == (["o0", "marker"], True)
    with start(settings) as service:
        ids, _ = insert_and_read(service.targets[0], "third")
        assert sorted(ids) == ["marker", "o0", "o1"]
