"""Each back end of the port Log does what a list of records does, over restarts too."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from ps2stream.errors import Unavailable
from ps2stream.protocol.ports import Log
from ps2stream.store.kafka_cluster import KafkaCluster
from ps2stream.store.kafka_log import KafkaLog
from ps2stream.store.postgres_log import PostgresLog
from ps2stream.store.postgres_session import PostgresDatabase
from ps2stream.store.segments import SegmentLog
from tests.support.postgres_server import Server

SEGMENT = 20_000
Open = Callable[[], Log]
_schemas = itertools.count(1)


class Request(Protocol):
    """The part of pytest's that is used."""

    param: str

    def getfixturevalue(self, name: str) -> object: ...


@pytest.fixture(params=["directory", "postgres", "kafka"])
def open_log(request: Request, tmp_path: Path) -> Open:
    """Opens one log again and again."""
    if request.param == "directory":
        return lambda: SegmentLog.open(tmp_path / "log", segment_bytes=SEGMENT)
    if request.param == "postgres":
        postgres = request.getfixturevalue("postgres")
        assert isinstance(postgres, Server)
        schema = f"contract_{os.getpid()}_{next(_schemas)}"
        database = PostgresDatabase(postgres.url, schema)
        return lambda: PostgresLog.open(database, "objects-0", segment_bytes=SEGMENT)
    topics = request.getfixturevalue("topics")
    assert isinstance(topics, KafkaCluster)
    return lambda: KafkaLog.open(topics, "objects-0", segment_bytes=SEGMENT)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_log_is_a_list_of_records(open_log: Open, seed: int) -> None:
    rng = random.Random(seed)
    log = open_log()
    records: list[tuple[int, bytes]] = []
    synced = end_synced = trimmed = 0
    for step in range(150):
        match rng.choices(["append", "sync", "read", "trim", "reopen"], [60, 30, 20, 10, 3])[0]:
            case "append":
                for _ in range(rng.choice([1, 1, 5, 200])):
                    data = rng.randbytes(rng.choice([0, 1, 40, 900, 5000]))
                    end = log.end
                    position = log.append(data)
                    assert position == end < log.end
                    records.append((position, data))
            case "sync":
                assert log.sync() == log.end == log.synced
                synced, end_synced = len(records), log.end
            case "read" if records:
                position, data = rng.choice(records)
                if position >= log.first:
                    assert log.read(position) == data
                else:
                    with pytest.raises(KeyError):
                        log.read(position)
            case "trim":
                before = rng.randint(0, log.synced)
                trimmed = max(trimmed, before)
                log.trim(before)
            case "reopen":
                log.close()
                log.close()
                with pytest.raises(Unavailable):
                    log.append(b"")
                log = open_log()
                del records[synced:]
                assert log.end == log.synced == end_synced
        oldest = next((p for p, _ in records if p >= trimmed), log.end)
        assert log.first <= oldest
        assert log.first <= log.synced <= log.end
        assert log.bytes >= 0
        if step % 10 == 0:
            kept = [each for each in records if each[0] >= log.first]
            assert list(log.scan()) == kept
            if kept:
                at = rng.randrange(len(kept))
                assert list(log.scan(kept[at][0])) == kept[at:]
        with pytest.raises(KeyError):
            log.read(log.end)
    # What was trimmed long ago is gone, and what remains is all there after a restart.
    log.append(b"x" * 10)
    log.trim(log.sync())
    log.append(b"last")
    log.sync()
    log.trim(log.synced)
    first, end = log.first, log.end
    kept = list(log.scan())
    log.close()
    log = open_log()
    assert (log.first, log.end, list(log.scan())) == (first, end, kept)
    assert kept[-1][1] == b"last"
    assert log.append(b"") == end
    log.close()
