"""The Log port, whichever keeps it, against a list of records."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ps2stream.errors import DataDirectoryError, Unavailable
from ps2stream.protocol.ports import Log
from ps2stream.store.memory import MemoryLog
from ps2stream.store.segments import SegmentLog

POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)
SEGMENT = 500
OPS = ["append", "append", "append", "sync", "sync", "read", "scan", "trim", "open"]

Opener = Callable[[], Log]
names = itertools.count(1)


@pytest.fixture(scope="module", params=["memory", "segments", POSTGRES])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], Opener]:
    """Each call makes a new place; what it gives opens the log there."""
    if request.param == "memory":
        return lambda: itertools.repeat(MemoryLog()).__next__
    if request.param == "segments":
        make = functools.partial(SegmentLog.open, segment_bytes=SEGMENT)
        return lambda: functools.partial(make, tmp_path_factory.mktemp("log"))
    from ps2stream.store.postgres_log import PostgresLog
    from ps2stream.store.postgres_session import PostgresDatabase

    database = PostgresDatabase(request.getfixturevalue("postgres").url, "logs")
    return lambda: functools.partial(
        PostgresLog.open, database, f"log-{next(names)}", segment_bytes=SEGMENT
    )


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_log_is_what_was_appended_and_synced(
    place: Callable[[], Opener], data: st.DataObject
) -> None:
    opened = place()
    log = opened()
    forgets = not isinstance(log, MemoryLog)
    records: list[tuple[int, bytes]] = []
    synced = trimmed = 0
    with contextlib.ExitStack() as ending:
        ending.callback(log.close)
        for op in data.draw(st.lists(st.sampled_from(OPS), max_size=40)):
            match op:
                case "append":
                    size = data.draw(st.sampled_from([0, 1, 99, 700]))
                    record = bytes([len(records) % 256]) * size
                    end = log.end
                    assert log.append(record) == end < log.end
                    records.append((end, record))
                case "sync":
                    assert log.sync() == log.end
                    synced = len(records)
                case "read" if records:
                    position, record = data.draw(st.sampled_from(records))
                    if position >= log.first:
                        assert log.read(position) == record
                    else:
                        with pytest.raises(KeyError):
                            log.read(position)
                case "scan":
                    start = data.draw(st.sampled_from([0, log.end, *(at for at, _ in records)]))
                    want = [r for r in records if r[0] >= max(start, log.first)]
                    assert list(log.scan(start)) == want
                case "trim":
                    before = data.draw(st.sampled_from([0, log.end, *(at for at, _ in records)]))
                    log.trim(before)
                    trimmed = max(trimmed, before)
                case "open" if forgets:
                    end = records[synced][0] if synced < len(records) else log.end
                    log.close()
                    with pytest.raises(Unavailable):
                        log.append(b"")
                    del records[synced:]
                    log = opened()
                    ending.callback(log.close)
                    assert log.end == end
            assert log.first in {log.end, *(at for at, _ in records)}
            assert log.first <= max(trimmed, 0)
        found = list(log.scan())
        assert found == [r for r in records if r[0] >= log.first]
        for position in (-1, log.end, log.end + 5):
            with pytest.raises(KeyError):
                log.read(position)
        log.sync()  # and what was to be trimmed goes
        found = list(log.scan())
        if forgets and found and len(found[0][1]) > 1:
            with pytest.raises(DataDirectoryError, match="no intact record begins there"):
                log.read(found[0][0] + 1)


def test_trimming_bounds_what_is_kept(place: Callable[[], Opener]) -> None:
    opened = place()
    log = opened()
    for i in range(200):
        position = log.append(b"%d" % i * 40)
        log.sync()
        log.trim(position)
        assert log.bytes <= 3 * SEGMENT + 200
    assert log.first > 0
    kept = list(log.scan())
    log.close()
    log = opened()
    assert list(log.scan())[-1] == (position, b"199" * 40)
    assert [r for r in log.scan() if r[0] >= kept[0][0]] == kept
    log.close()


def test_a_scan_shows_what_was_there_when_it_was_called(place: Callable[[], Opener]) -> None:
    log = place()()
    for i in range(40):
        log.append(b"%d" % i * 40)
    log.sync()
    last = log.append(b"x")
    found = log.scan()
    assert next(found)[1] == b"0" * 40
    log.append(b"y")
    log.sync()
    log.trim(last)
    log.append(b"z")
    log.sync()
    seen = [record for _, record in found]
    assert seen[-1] == b"x"
    assert b"y" not in seen
    want = [b"%d" % i * 40 for i in range(1, 40)] + [b"x"]
    which = [want.index(record) for record in seen]
    assert which == sorted(set(which))
    kept = {record for _, record in log.scan()} - {b"y", b"z"}
    assert kept <= set(seen)  # those that were trimmed may have gone
    log.close()
