"""The kernels that read rows of any chunk, against the rows that were put there."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.protocol.rows import UpdateKind
from ps2stream.sequencer import chunk_kernels
from ps2stream.sequencer.chunk_kernels import COUNT, DEAD, DEAD_BYTES, PARTS, ROW_BITS
from ps2stream.sequencer.packed_rows import QueryChunk
from tests.support.sequencing import inserts
from tests.support.updates import insert, query_rows


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=5), st.integers(0, 1 << 30))
def test_the_kernels_find_what_their_naive_twins_find(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    total = sum(sizes)
    ids = [f"{i}-" + "x" * int(rng.integers(0, 9)) for i in range(total)]
    handle = np.cumsum(rng.integers(1, 9, total))
    rows = query_rows([insert(id, "y" * (i % 7)) for i, id in enumerate(ids)])
    session = rng.integers(0, 1 << 40, total)
    rows = rows.replace(lsn=handle, handle=handle, session=session)
    chunks, place = [], np.empty(total, np.int64)
    for number, end in enumerate(np.cumsum(sizes).tolist()):
        mine = np.arange(end - sizes[number], end)
        chunk = QueryChunk(number, int(handle[mine[0]]))
        chunk.append(*inserts(rows, mine), len(mine))
        chunks.append(chunk)
        place[mine] = number << ROW_BITS | np.arange(len(mine))
    table = np.array([chunk.describe() for chunk in chunks])
    asked = rng.integers(0, total, 12)

    places = np.empty(12, np.int64)
    chunk_kernels.find_handles(table, np.arange(len(sizes)), handle[asked], places)
    assert places.tolist() == place[asked].tolist()
    found = np.empty(12, np.int64), np.empty(12, np.int64)
    chunk_kernels.read_owners(table, places, *found)
    assert found[0].tolist() == handle[asked].tolist()
    assert found[1].tolist() == session[asked].tolist()
    off, out = np.empty(13, np.int64), np.empty(300, np.uint8)
    chunk_kernels.find_ids(table, places, off, out)
    assert [out[off[i] : off[i + 1]].tobytes().decode() for i in range(12)] == [
        ids[i] for i in asked
    ]
    dead = np.unique(places)
    stale = chunk_kernels.mark_dead(table, dead)
    gone = [dead[dead >> ROW_BITS == k] for k in range(len(sizes))]
    assert table[:, DEAD].tolist() == [len(at) for at in gone]
    assert [chunk.live_count for chunk in chunks] == (table[:, COUNT] - table[:, DEAD]).tolist()
    sizes_of = [np.diff(chunk._off[: len(chunk) + 1]) for chunk in chunks]
    lost = [int(s[at & 0xFFFF].sum()) for s, at in zip(sizes_of, gone, strict=True)]
    assert table[:, DEAD_BYTES].tolist() == lost
    assert stale == any(
        2 * len(at) > len(chunk) or PARTS * size > len(chunk._data)
        for chunk, at, size in zip(chunks, gone, lost, strict=True)
    )
    assert (rows.kind == UpdateKind.INSERT).all()
