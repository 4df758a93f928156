"""Kernels are compiled for one type: no caller waits for a compiler once the service is warm."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ps2stream.workers.indexes import INDEX_NAMES

PROGRAM = """
import collections, json, queue, re, sys, time
from pathlib import Path
import grpc
from numba.core import event
import pyarrow as pa
import shapely
from ps2stream import Client
from ps2stream.protocol.arrow_ipc import to_ipc
from ps2stream.cluster.service import start
from ps2stream.cluster.topology import Topology
from ps2stream.cluster.warm import warm
from ps2stream.cluster.warm_halves import rehearse_index, rehearse_service
from ps2stream.config import Settings
from ps2stream.space.grid import Grid
from ps2stream.routing.plan import built_in_plan
from ps2stream.space.regions import Circle, Polygon, Rect
from ps2stream.language.analyzer import Analysis
from ps2stream.v1 import delivery_pb2, object_pb2, pubsub_pb2, pubsub_pb2_grpc

def signatures():
    found = collections.defaultdict(set)
    for name, module in list(sys.modules.items()):
        if name.startswith("ps2stream."):
            for value in vars(module).values():
                if type(value).__name__ == "CPUDispatcher" and value.__module__ == name:
                    found[f"{name}.{value.__name__}"] = {str(s) for s in value.signatures}
    return found

topology = Topology(built_in_plan(Analysis(salt=0), Grid(), 2), index=sys.argv[2])
rehearse_service(topology)
rehearse_index(topology)
halves = signatures()
warm(topology)
left = sorted(name for name, found in signatures().items() if found - halves[name])
warmed = {(name, s) for name, found in signatures().items() for s in found}
late = event.RecordingListener()
event.register("numba:compile", late)
settings = Settings(
    port=0, data_dir=Path(sys.argv[1]), runtime="local", workers=2, mergers=2, index=sys.argv[2]
)
with start(settings) as service, Client(service.targets[0]) as client:
    for session in ("a", "b", "c"):
        client.insert(f"one-{session}", "warm OR (up AND now)", session=session)
        client.insert(f"two-{session}", "warm", Circle(0.0, 0.0, 50.0), session=session)
    client.insert_many((f"many-{i}", f"word{i} AND warm", Rect(-9, -9, 9, 9)) for i in range(4000))
    triangle = Polygon(shapely.Polygon([(-1, -1), (1, -1), (0, 1)]))
    client.insert("three", "warm", triangle)
    client.insert('four', '"warm up" ("up now" OR no*) -cold', triangle)
    client.insert("five", "warm AND n = 1 AND x < 0.7 AND NOT n > 5")
    client.insert("three", "warm OR calm", Rect(-9, -9, 9, 9), replace=True)
    texts = ["warm up now", "warm up now \\u00e9t\\u00e9"] * 20
    posts = [{"lon": 0.0, "lat": 0.0, "text": text} for text in texts]
    client.publish(posts)
    columns = {"lon": [0.0] * 40, "lat": [0.0] * 40, "text": ["warm up"] * 40}
    columns |= {"n": [1] * 40, "x": [0.5] * 40, "b": [True] * 40, "t": ["\\u00e9", None] * 20}
    columns["payload"] = ["[1, true]"] * 40
    one = object_pb2.Object(lon=0.0, lat=0.0, text="warm up")
    one.attributes.values["n"].integer = 1
    one.payload.bytes = b"x"
    requests = queue.SimpleQueue()
    fields = delivery_pb2.DeliverFields(text=True, attributes=True, payload=True)
    begin = delivery_pb2.Start(session="a", fields=fields)
    requests.put(delivery_pb2.DeliverRequest(start=begin))
    with grpc.insecure_channel(service.targets[0]) as channel:
        stub = pubsub_pb2_grpc.PubSubStub(channel)
        for batch in (
            object_pb2.ObjectBatch(arrow=to_ipc(pa.RecordBatch.from_pydict(columns))),
            object_pb2.ObjectBatch(objects=[one] * 3),
        ):
            stub.Publish(pubsub_pb2.PublishRequest(batch=batch))
        call = stub.Deliver(iter(requests.get, None))
        next(answer for answer in call if answer.batch.attributes and answer.batch.payloads)
        requests.put(None)
    for session in ("a", "b", "c"):
        with client.subscribe(session) as matches:
            for _, match in zip(range(160), matches):
                pass
    client.delete("one-a")
    client.publish(posts)
    _, version = client.scale(1)
    while client.migrations().plan_version != version:
        time.sleep(0.1)
    client.publish(posts)
twice = [
    name
    for name, found in signatures().items()
    if len({re.sub("'C', (True|False)", "C", s) for s in found}) < len(found)
]
cold = {
    name
    for name, found in signatures().items()
    if any((name, s) not in warmed for s in found)
}
late = [e.data["dispatcher"].py_func.__qualname__ for _, e in late.buffer if e.is_start]
print(json.dumps([left, twice, sorted(cold), late]))
"""


@pytest.mark.takes_turns
@pytest.mark.parametrize("index", INDEX_NAMES)
def test_kernels_are_compiled_for_one_type_and_before_the_start(
    index: str, root: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "data"), index],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        error = done.stderr.strip().rpartition("\n")[2]
        in_time = re.match(r"(ps2stream\.errors\.Unavailable|TimeoutError)\b", error) is None
        raise (AssertionError if in_time else TimeoutError)(done.stderr[-4000:])
    left_by_the_halves, twice, cold, late = json.loads(done.stdout.splitlines()[-1])
    assert (left_by_the_halves, twice, cold, late) == ([], [], [], [])
