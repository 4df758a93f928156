"""Chunks hold whole frames or a part of one, and what was cut reads back."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.errors import DataDirectoryError
from ps2stream.store import kafka_chunks
from ps2stream.store.frames import FRAME, HEADER, walk_frames
from ps2stream.store.identity import LogIdentity
from ps2stream.store.kafka_chunks import (
    ChunkHeader,
    ChunkOffsets,
    ChunkRun,
    LogChunk,
    cut_chunks,
)

SIZES = st.lists(st.sampled_from([0, 1, 20, 50, 91, 92, 93, 95, 150, 400]), max_size=20)


@given(sizes=SIZES, begin=st.integers(0, 1 << 40), seed=st.integers(0, 99))
def test_what_is_cut_reads_back(sizes: list[int], begin: int, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_chunks, "CHUNK", 100)
        records = [random.Random(seed).randbytes(size) for size in sizes]
        positions, end = [], begin
        for record in records:
            positions.append(end)
            end += FRAME + len(record)
        run = ChunkRun()
        at = begin
        for base, continues, data in cut_chunks(positions, records):
            assert base == at
            assert 0 < len(data) <= 100
            assert (base in positions) is not bool(continues)
            run.append(base, data)
            at += len(data)
    assert at == end
    pairs = list(zip(positions, records, strict=True))
    assert list(walk_frames(run, HEADER, begin, end)) == pairs
    for position, record in pairs:
        assert run.read(position) == record
        assert run.copy_from(position).read(position) == record
    assert run.read(end) is None
    assert run.read(begin - 1) is None


def test_a_run_keeps_what_came_last() -> None:
    run = ChunkRun()
    for i in range(100):
        run.append(10 * i, b"%010d" % i)
        run.shrink(100)
        assert run.end - run.base == run.bytes <= 210
    assert run.bytes >= 100
    assert run.pread(15, 985) == (b"%010d%010d" % (98, 99))[5:]
    run.append(5000, b"elsewhere")
    assert (run.base, run.end, run.bytes) == (5000, 5009, 9)


def test_a_header_names_the_log_and_what_is_damaged() -> None:
    header = ChunkHeader(1 << 50, 1, 7)
    assert ChunkHeader.decode(header.encode(), "") == header
    assert header.identity is None
    identity = LogIdentity((1 << 63) - 1, 0, 3, 4)
    named = ChunkHeader(0, 0, 0, *identity)
    assert ChunkHeader.decode(named.encode(), "").identity == identity
    raw = bytearray(named.encode())
    for i in range(len(raw)):
        raw[i] ^= 8
        with pytest.raises(DataDirectoryError, match="somewhere is damaged at byte 0"):
            ChunkHeader.decode(bytes(raw), "somewhere")
        raw[i] ^= 8


def test_offsets_are_remembered_here_and_there() -> None:
    offsets, step = ChunkOffsets(), 100_000
    assert offsets.find(5) is None
    for i in range(100):
        header = ChunkHeader(i * step, i % 2, 0)
        offsets.add(LogChunk(3 * i, header, b""))
    for i in range(100):
        at, offset = offsets.find(i * step + 5) or (-1, -1)
        assert offset == 3 * at // step
        assert i * step - 5 * step < at <= i * step
        following = offsets.find_next(at)
        assert following is None or at < following[0] <= at + 5 * step
    last = offsets.find(1 << 60)
    assert last is not None
    offsets.drop(last[0])
    assert offsets.find(last[0]) == last
    assert offsets.find(last[0] - 1) is None
