"""Columns of matches with and without NumPy."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ps2stream.client import matches
from ps2stream.client.matches import Gap, Matches, MatchReceiver, read_batch
from ps2stream.errors import Ps2StreamError
from ps2stream.protocol.session_numbers import LEAP
from ps2stream.v1 import delivery_pb2

ROOT = Path(__file__).resolve().parents[3]
COLUMNS = ("handles", "objects", "offsets", "lon", "lat", "time")
BARE = """
import json, sys, time

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "numba", "pyarrow"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Blocker())
from ps2stream.client.matches import read_batch

data = sys.stdin.buffer.read()
rounds, pairs, best = 20, 0, 0.0
for _ in range(3):
    begun = time.process_time()
    for _ in range(rounds):
        pairs = sum(1 for _ in read_batch(data, {}))
    best = max(best, rounds * pairs / (time.process_time() - begun))
found = read_batch(data, {})
columns = {name: getattr(found, name).tolist() for name in json.loads(sys.argv[1])}
kinds = sorted({type(getattr(found, name)).__name__ for name in columns})
rest = found.after(found.first + 9)
print(json.dumps([columns, list(found), rest.handles.tolist(), kinds, best]))
"""


def make_delivery(objects: int, pairs: int) -> bytes:
    draw = random.Random(7)
    batch = delivery_pb2.DeliverBatch(
        session_seq=3,
        new_handles=range(50),
        new_query_ids=[f"query-{i}" for i in range(50)],
        pair_handles=[draw.randrange(50) for _ in range(pairs)],
        pair_objects=[draw.randrange(objects) for _ in range(pairs)],
        object_ids=[f"post-{i}" for i in range(objects)],
        object_offsets=[2**64 - 1 - i for i in range(objects)],
        partition=4,
        lon=[draw.uniform(-180, 180) for _ in range(objects)],
        lat=[draw.uniform(-90, 90) for _ in range(objects)],
        time_ms=[draw.randrange(-(2**62), 2**62) for _ in range(objects)],
        text=[f"the river 🌊 rises {i}" * 4 for i in range(objects)],
    )
    return delivery_pb2.DeliverResponse(batch=batch).SerializeToString()


def columns_of(found: Matches) -> dict[str, Any]:
    return {name: getattr(found, name) for name in COLUMNS}


def test_columns_are_arrays_of_numpy() -> None:
    found = read_batch(make_delivery(5, 9), {})
    dtypes = ("uint64", "uint32", "uint64", "float64", "float64", "int64")
    for column, dtype in zip(columns_of(found).values(), dtypes, strict=True):
        assert isinstance(column, np.ndarray)
        assert column.dtype == dtype
    assert len(found) == len(found.handles) == 9
    assert found.handles is found.handles, "a column is made once"
    assert matches.find_numpy() is np


def test_pairs_are_skipped_twice() -> None:
    found = read_batch(make_delivery(5, 9), {})
    rest = found.after(found.first + 1).after(found.first + 3)
    assert (rest.first, len(rest), rest.last) == (found.first + 4, 5, found.last)
    assert list(rest) == list(found)[4:]


def make_gap(first: int, last: int, count: int) -> bytes:
    begin: dict[str, Any] = {"from": first}  # a keyword of Python's
    gap = delivery_pb2.Gap(**begin, to=last, count=count)
    batch = delivery_pb2.DeliverBatch(session_seq=last + 1, gap=gap)
    return delivery_pb2.DeliverResponse(batch=batch).SerializeToString()


@pytest.mark.parametrize(
    ("last", "count", "received", "rest"),
    [
        (18, 18, 6, 12),
        (18 + LEAP, 18, 6, 12),
        (18 + LEAP, 18, 6 + LEAP, 12),
        (18 + 2 * LEAP, 18, 6 + LEAP, 12),
        (18 + LEAP, 18, 18, 0),
        (LEAP, 0, 6, 0),
    ],
)
def test_a_gap_counts_no_match_that_was_received(
    last: int, count: int, received: int, rest: int
) -> None:
    receiver = MatchReceiver("s")
    receiver.took(received)
    found = receiver.on(make_gap(1, last, count))
    assert found is not None
    assert found.gap == Gap(received + 1, last, rest)
    assert receiver.missed == rest


@pytest.mark.parametrize(
    "fields",
    [
        {"pair_handles": [1], "pair_objects": [1]},
        {"pair_handles": [1, 1], "pair_objects": [0]},
        {"lon": [1.0, 2.0]},
        {"text": ["a", "b"]},
        {"object_ids": ["a", "b"]},
        {"new_handles": [1, 2], "new_query_ids": ["a"]},
    ],
)
def test_columns_that_do_not_fit_are_malformed(fields: dict[str, Any]) -> None:
    whole: dict[str, Any] = {"object_ids": ["o"], "object_offsets": [1]}
    batch = delivery_pb2.DeliverBatch(**(whole | fields))
    data = delivery_pb2.DeliverResponse(batch=batch).SerializeToString()
    with pytest.raises(Ps2StreamError, match="malformed delivery"):
        read_batch(data, {})


def test_results_are_the_same_without_numpy() -> None:
    data = make_delivery(1000, 1500)
    command = [sys.executable, "-c", BARE, json.dumps(COLUMNS)]
    out = subprocess.run(command, input=data, capture_output=True, check=True, cwd=ROOT).stdout
    columns, rows, rest, kinds, rate = json.loads(out)
    found = read_batch(data, {})
    assert columns == {name: column.tolist() for name, column in columns_of(found).items()}
    assert rows == [list(match) for match in found]
    assert rest == found.after(found.first + 9).handles.tolist()
    assert kinds == ["array"]
    assert rate >= 50_000, f"{rate:,.0f} matches/s"
