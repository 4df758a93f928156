"""The registry keeps exactly the live rows, in few chunks, and what died lately."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.protocol.rows import QueryRows, UpdateKind, no_queries
from ps2stream.sequencer import registry
from tests.support.updates import Row, delete, ids_of, insert, query_rows


def test_chunks_are_few_and_a_small_one_spares_the_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "CHUNK", 64)
    queries = registry.QueryRegistry()

    def add(lsn: int, n: int) -> None:
        queries.apply(query_rows([insert(str(lsn + i)) for i in range(n)], lsn))

    add(1, 32)
    first = queries._chunks[0]
    add(33, 1)
    assert queries._chunks[0] is first
    for lsn in range(34, 1025):
        add(lsn, 1)
    sizes = [len(c.live) for c in queries._chunks]
    assert sum(sizes) == 1024
    assert max(sizes) <= 64
    assert len(sizes) <= 2 * 1024 // 64 + 6
    gone = [i for i in range(1, 1025) if i % 16]  # what is left of two chunks fits in one
    rows = query_rows([delete(str(i)) for i in gone], 1025)
    queries.apply(rows.replace(handle=np.array(gone)))
    assert len(queries._chunks) <= 4
    assert ids_of(queries.page(0, 1024)[0]) == [str(i) for i in range(16, 1025, 16)]


class Twin:
    """When each handle was inserted and deleted, row by row."""

    def __init__(self) -> None:
        self.lsn = 0
        self.live: dict[str, int] = {}
        self.born: dict[int, tuple[str, int]] = {}  # handle: id, LSN of its delete

    def draw(self, data: st.DataObject) -> QueryRows:
        """The next batch: deletes of what lives and inserts, in any order; one id may do both."""
        rows: list[tuple[Row, int]] = []
        for _ in range(data.draw(st.integers(1, 12))):
            self.lsn += 1
            dies: bool = data.draw(st.booleans())
            if self.live and dies:
                id = data.draw(st.sampled_from(sorted(self.live)))
                handle = self.live.pop(id)
                self.born[handle] = (id, self.lsn)
                rows.append((delete(id), handle))
            else:
                id = str(self.lsn)
                self.live[id] = self.lsn
                self.born[self.lsn] = (id, 1 << 62)
                rows.append((insert(id, "z" * (self.lsn % 5)), self.lsn))
        columns = query_rows([row for row, _ in rows], self.lsn - len(rows) + 1)
        off = 4 * np.arange(len(rows) + 1)
        return columns.replace(
            handle=np.array([handle for _, handle in rows]),
            box_off=off,
            box=np.tile([0.0, 0.0, 1.0, 1.0], len(rows)),
        )

    def as_of(self, lsn: int) -> dict[int, str]:
        return {h: id for h, (id, end) in self.born.items() if h <= lsn < end}


def load(queries: registry.QueryRegistry, upto: int, size: int) -> list[QueryRows]:
    """All pieces of what a worker asks for that gains units."""
    found, after = [], 0
    everywhere = np.array([-180.0, -90.0, 180.0, 90.0])
    while after < upto:
        rows, last = queries.load(after, upto, everywhere, size)
        assert after < last <= upto
        assert ((rows.handle > after) & (rows.handle <= last)).all()
        found.append(rows)
        after = last
    return found


def as_of(rows: QueryRows, lsn: int) -> dict[int, str]:
    """What lives at `lsn`, by rows in LSN order."""
    out: dict[int, str] = {}
    for at, kind, handle, id in zip(rows.lsn, rows.kind, rows.handle, ids_of(rows), strict=True):
        if at <= lsn and kind == UpdateKind.INSERT:
            assert at == handle
            out[int(handle)] = id
        elif at <= lsn:
            del out[int(handle)]  # the state never deletes what it has not inserted
    return out


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_it_keeps_exactly_the_live_rows_and_the_lately_deleted(data: st.DataObject) -> None:
    old, registry.CHUNK = registry.CHUNK, 16
    try:
        twin, queries, watermark = Twin(), registry.QueryRegistry(), 0
        for _ in range(data.draw(st.integers(1, 12))):
            queries.apply(twin.draw(data))
            assert len(queries) == len(twin.live)
            asked = data.draw(st.permutations(sorted(twin.live)))
            found = queries.rows(queries.handles([i.encode() for i in asked]))
            assert ids_of(found) == asked
            listed = sorted(twin.live, key=twin.live.__getitem__)
            assert ids_of(queries.page(0, 1000)[0]) == listed
            watermark = data.draw(st.integers(watermark, twin.lsn))
            queries.forget(watermark)
            pieces = queries.state(5)
            state = [piece.rows() for piece in pieces]
            queries_lsn = [int(rows.lsn[-1]) for rows in state]
            assert queries_lsn == [piece.last for piece in pieces]
            whole = QueryRows.concat([*state, no_queries()])
            assert (np.diff(whole.lsn) > 0).all()
            for lsn in range(watermark, twin.lsn + 1):
                assert as_of(whole, lsn) == twin.as_of(lsn)
            upto = data.draw(st.integers(1, twin.lsn))
            loaded = QueryRows.concat([*load(queries, upto, size=3), no_queries()])
            for lsn in range(max(watermark, upto), twin.lsn + 1):
                want = {h: id for h, id in twin.as_of(lsn).items() if h <= upto}
                assert as_of(loaded.take(np.argsort(loaded.lsn, kind="stable")), lsn) == want
            kept = sum(end > watermark for _, end in twin.born.values())
            slack = 12 + 12  # a batch is forgotten whole
            assert len(whole) <= 2 * (kept + slack)
        assert sum(len(c.live) for c in queries._chunks) <= 2 * len(twin.live)
    finally:
        registry.CHUNK = old


def test_a_state_is_as_of_when_it_was_taken() -> None:
    queries = registry.QueryRegistry()
    queries.apply(query_rows([insert(str(i)) for i in range(1, 9)], 1))
    pieces = queries.state(3)
    gone = query_rows([delete(str(i)) for i in (1, 2, 3, 4, 5, 6)], 9)
    queries.apply(gone.replace(handle=np.arange(1, 7)))
    queries.apply(query_rows([insert("1")], 15))
    queries.forget(15)
    assert [ids_of(piece.rows()) for piece in pieces] == [
        ["1", "2", "3"],
        ["4", "5", "6"],
        ["7", "8"],
    ]
    assert [i for piece in queries.state(9) for i in ids_of(piece.rows())] == ["7", "8", "1"]


def test_a_mass_of_deletes_comes_in_pieces() -> None:
    queries = registry.QueryRegistry()
    queries.apply(query_rows([insert(str(i)) for i in range(1, 101)], 1))
    gone = query_rows([delete(str(i)) for i in range(1, 101)], 101)
    queries.apply(gone.replace(handle=np.arange(1, 101)))
    queries.apply(query_rows([insert("last")], 201))
    sizes = [len(piece.rows()) for piece in queries.state(10)]
    assert sum(sizes) == 201
    assert max(sizes) <= 20


def test_a_worker_is_told_the_queries_that_meet_a_box() -> None:
    rng = np.random.default_rng(3)
    rows = query_rows([insert(str(i), "w") for i in range(200)], 1)
    count = rng.integers(1, 4, 200)
    off = np.concatenate([np.zeros(1, np.int64), 4 * np.cumsum(count)])
    west, south = rng.uniform(-180, 170, off[-1] // 4), rng.uniform(-90, 80, off[-1] // 4)
    box = np.stack([west, south, west + 10, south + 10], 1).ravel()
    queries = registry.QueryRegistry()
    queries.apply(rows.replace(box_off=off, box=box))
    found, last = queries.load(0, 200, np.array([0.0, 0.0, 40.0, 30.0]), 1000)
    assert last == 200
    want = [
        str(i)
        for i in range(200)
        if any(
            w <= 40 and e >= 0 and s <= 30 and n >= 0
            for w, s, e, n in box[off[i] : off[i + 1]].reshape(-1, 4)
        )
    ]
    assert 0 < len(want) < 100
    assert ids_of(found) == want
