"""The registry keeps exactly the live rows, in few chunks, and what died lately."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.expression import compile_column
from ps2stream.language.query_rows import RectColumns, build_rows
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.rows import QueryRows, UpdateKind, no_queries
from ps2stream.sequencer import registry
from tests.support.sequencing import cut_hashes
from tests.support.updates import Row, delete, ids_of, insert, query_rows

ANY = np.zeros(0, np.uint64)


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
        """The next batch: deletes of what lives, inserts, and both at one LSN, in any order; one
        id may do all."""
        rows: list[tuple[Row, int]] = []
        lsns: list[int] = []
        for _ in range(data.draw(st.integers(1, 12))):
            self.lsn += 1
            what: str = data.draw(st.sampled_from(["insert", "delete", "replace"]))
            what, id = what if self.live else "insert", str(self.lsn)
            if what != "insert":
                id = data.draw(st.sampled_from(sorted(self.live)))
                handle = self.live.pop(id)
                self.born[handle] = (id, self.lsn)
                rows.append((delete(id), handle))
                lsns.append(self.lsn)
            if what != "delete":
                self.live[id] = self.lsn
                self.born[self.lsn] = (id, 1 << 62)
                rows.append((insert(id, "z" * (self.lsn % 5)), self.lsn))
                lsns.append(self.lsn)
        columns = query_rows([row for row, _ in rows])
        off = 4 * np.arange(len(rows) + 1)
        return columns.replace(
            lsn=np.array(lsns),
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
        rows, last = queries.load(after, upto, everywhere, ANY, size)
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


@pytest.mark.takes_turns
@pytest.mark.parametrize("bits", [8, 64])
@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_it_keeps_exactly_the_live_rows_and_the_lately_deleted(
    bits: int, data: st.DataObject
) -> None:
    with mock.patch.object(registry, "CHUNK", 16), cut_hashes(bits):
        twin, queries, watermark = Twin(), registry.QueryRegistry(), 0
        for _ in range(data.draw(st.integers(1, 12))):
            queries.apply(twin.draw(data))
            assert len(queries) == len(twin.live)
            asked = data.draw(st.permutations(sorted(twin.live)))
            found = queries.rows(queries.handles(*strings_to_column(asked)))
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
            assert (np.diff(whole.lsn) >= 0).all()
            assert len({*zip(whole.lsn.tolist(), whole.kind.tolist(), strict=True)}) == len(whole)
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
    found, last = queries.load(0, 200, np.array([0.0, 0.0, 40.0, 30.0]), ANY, 1000)
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


def test_a_worker_is_told_the_queries_with_one_of_some_terms() -> None:
    rng = np.random.default_rng(5)
    rows = query_rows([insert(str(i), "w" * int(rng.integers(1, 4))) for i in range(200)], 1)
    term = rng.integers(1, 60, len(rows.term)).astype(np.uint64)
    queries = registry.QueryRegistry()
    boxes = {"box_off": 4 * np.arange(201), "box": np.tile([0.0, 0.0, 1.0, 1.0], 200)}
    queries.apply(rows.replace(term=term, **boxes))
    everywhere = np.array([-180.0, -90.0, 180.0, 90.0])
    for wanted in ([7, 9], [60], [3]):
        some = np.array(wanted, np.uint64)
        found, _ = queries.load(0, 200, everywhere, some, 1000)
        off = rows.term_off.tolist()
        want = [str(i) for i in range(200) if {*wanted} & {*term[off[i] : off[i + 1]].tolist()}]
        assert ids_of(found) == want
        assert bool(want) == (wanted != [60])


def test_ids_that_share_a_hash_are_told_apart() -> None:
    """Thousands of ids under 256 hashes, inserted, deleted and inserted again, against a dict."""
    rng = np.random.default_rng(4)
    twin: dict[str, int] = {}
    lsn = 0
    with cut_hashes(8):
        queries = registry.QueryRegistry(salt=3)
        for _ in range(30):
            gone = [id for id in twin if rng.random() < 0.3]
            born = [f"{i}-{'x' * (i % 200)}" for i in rng.choice(2_000, 300, False).tolist()]
            born = [id for id in born if id not in twin or id in gone]
            rows = query_rows([delete(id) for id in gone] + [insert(id) for id in born], lsn + 1)
            handles = [twin.pop(id) for id in gone]
            twin |= zip(born, range(lsn + len(gone) + 1, lsn + len(rows) + 1), strict=True)
            queries.apply(rows.replace(handle=np.array(handles + [twin[id] for id in born])))
            lsn += len(rows)
            queries.forget(lsn)
            asked = [*twin, *gone, "never"]
            found = queries.handles(*strings_to_column(asked)).tolist()
            assert found == [twin.get(id, 0) for id in asked]
            assert len(queries) == len(twin)
        assert ids_of(queries.rows(np.array(list(twin.values())))) == list(twin)


def test_the_registry_is_small() -> None:
    """The columns of short queries with a rectangle, two words and an id of seven bytes."""
    analyzer = Analyzer(Analysis(salt=1))
    n = 20_000
    texts = strings_to_column(f"word{i % 700} AND rain" for i in range(n))
    compiled = compile_column(*texts, analyzer, Frequencies.of({}, analyzer))
    west, south = np.random.default_rng(1).random((2, n))
    ids = strings_to_column(f"q{i:06}" for i in range(n))
    rows = build_rows(ids, compiled, RectColumns(west, south, west + 0.1, south + 0.1), texts)
    queries = registry.QueryRegistry()
    number = np.arange(1, n + 1)
    rows = rows.replace(lsn=number, handle=number, session=number % 9)
    with mock.patch.object(registry, "CHUNK", n):
        queries.apply(rows)
        queries.apply(query_rows([insert("last")], n + 1))  # the last chunk has room for more
    assert queries.nbytes < 105 * n
    again = queries.rows(number)
    for name in ("id", "term", "box", "geom", "source", "session", "post", "form"):
        np.testing.assert_array_equal(getattr(again, name), getattr(rows, name))
