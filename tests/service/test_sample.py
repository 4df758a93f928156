"""The sample of recent objects that the planner asks a running service for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pyarrow as pa

from ps2stream import AsyncClient, Client
from ps2stream.client.attributes import read_attributes
from ps2stream.client.frames import read_sample
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.posts.sample import SAMPLE, since_of
from ps2stream.protocol.arrow_ipc import to_ipc
from ps2stream.v1.admin_pb2 import SampleObjectsResponse
from ps2stream.v1.object_pb2 import Attributes

ROWS = [{"id": f"o{i}", "lon": i / 99, "lat": 1, "text": "é" * (i % 9)} for i in range(5000)]


def settings(tmp_path: Path, objects: int) -> Settings:
    return Settings(
        runtime="local", port=0, workers=1, data_dir=tmp_path / "data", sample_objects=objects
    )


def test_a_sample_of_what_was_published(tmp_path: Path) -> None:
    with (
        start(settings(tmp_path, 10_000)) as service,
        Client(service.targets[0], timeout=90) as client,
    ):
        assert client.sample().num_rows == 0
        for first in range(0, len(ROWS), 500):
            client.publish(ROWS[first : first + 500])
        found = client.sample()
        assert found.schema == SAMPLE
        assert found.select(["id", "lon", "text"]).to_pylist() == [
            {k: row[k] for k in ("id", "lon", "text")} for row in ROWS
        ]
        assert set(found["weight"].to_pylist()) == {1.0}
        assert since_of(found) == 0
        accepted = found["accepted"].to_numpy()
        assert (np.diff(accepted) >= 0).all()
        assert accepted[0] > 10**12
        assert asyncio.run(_asked(service.targets[0])).equals(found)


def test_attributes_are_in_the_sample(tmp_path: Path) -> None:
    held = [{"kind": "quake", "mag": i} if i % 3 else {} for i in range(9)]
    rows = [
        {"lon": 1, "lat": 1, "text": "a"} | ({"attributes": each} if each else {}) for each in held
    ]
    rows[4]["payload"] = {"not": "sampled"}
    with (
        start(settings(tmp_path, 100)) as service,
        Client(service.targets[0], timeout=90) as client,
    ):
        client.publish(rows)
        found = client.sample()["attributes"].to_pylist()
    assert [read_attributes(Attributes.FromString(raw)) for raw in found] == held


def test_a_sample_of_an_earlier_version_has_no_attributes() -> None:
    columns = SAMPLE.names[:-1]
    old = pa.RecordBatch.from_pylist(
        [{"id": "a", "time": 1, "lon": 1.0, "lat": 1.0, "text": "b", "weight": 1.0, "accepted": 5}],
        pa.schema([SAMPLE.field(name) for name in columns]),
    )
    message = SampleObjectsResponse(arrow=to_ipc(old)).SerializeToString()
    found = read_sample([message])
    assert found.schema == SAMPLE
    assert found["attributes"].to_pylist() == [b""]


async def _asked(target: str) -> pa.Table:
    async with AsyncClient(target) as client:
        return await client.sample()


def test_a_service_that_keeps_none_says_so_by_an_empty_sample(tmp_path: Path) -> None:
    with start(settings(tmp_path, 0)) as service, Client(service.targets[0], timeout=90) as client:
        client.publish(ROWS[:10])
        assert client.sample().num_rows == 0
