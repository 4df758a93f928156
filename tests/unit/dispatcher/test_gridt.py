"""gridt against dictionaries, and its one promise: a match always meets its query."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ps2stream.dispatcher.gridt import Gridt, GridtError
from ps2stream.protocol.frame import F64, I64, U64
from ps2stream.protocol.rows import QueryRows
from ps2stream.routing.h1 import H1, HashedLeaf
from ps2stream.routing.plan_follower import CompiledRoutes
from ps2stream.routing.tags import QueryTagger, QueryTags
from ps2stream.space.grid import Grid
from tests.support.routing import Box, Row, objects, query_rows

GRID = Grid(lon_bits=5, lat_bits=4, max_cells=6)
CELLS = 1 << 9
TERMS = [1, 2, 3, 5, 8, 13, 2**40 + 1, 2**63 + 5, 2**64 - 2]

coordinate = st.sampled_from([-180.0, -90.0, -11.25, -0.0, 0.0, 1e-300, 11.25, 89.9, 90.0])
longitude = st.one_of(coordinate, st.floats(-180, 180), st.just(180.0), st.just(179.99))
latitude = st.one_of(coordinate.filter(lambda x: abs(x) <= 90), st.floats(-90, 90))


def between(low: float, high: float) -> st.SearchStrategy[float]:
    """A closed interval, its ends preferred; 0.0 + x makes -0.0 a bound that floats() takes."""
    inside = st.floats(0.0 + low, 0.0 + high)
    return st.one_of(st.sampled_from([low, high]), inside)


@st.composite
def box(draw: st.DrawFn) -> Box:
    lon = sorted([draw(longitude), draw(longitude)])
    lat = sorted([draw(latitude), draw(latitude)])
    return lon[0], lat[0], lon[1], lat[1]


@st.composite
def row(draw: st.DrawFn) -> Row:
    terms = tuple(sorted(draw(st.sets(st.sampled_from(TERMS), min_size=1, max_size=4))))
    post = draw(st.sets(st.integers(0, len(terms) - 1), min_size=1))
    return Row(terms, tuple(sorted(post)), tuple(draw(st.lists(box(), min_size=1, max_size=2))))


@st.composite
def h1(draw: st.DrawFn) -> H1:
    """Space, text and mixed plans, for few and for many workers."""
    workers = draw(st.sampled_from([1, 2, 3, 64, 65, 300, 1024]))
    worker = st.integers(0, workers - 1)

    def leaf() -> HashedLeaf:
        if draw(st.booleans()):
            return HashedLeaf((draw(worker),))
        listed = draw(st.dictionaries(st.sampled_from(TERMS), worker, max_size=5))
        others = tuple(draw(st.lists(worker, min_size=1, max_size=3)))
        terms, owner = np.array(list(listed), np.uint64), np.array([*listed.values()], np.uint16)
        return HashedLeaf(others, terms, owner)

    leaves = [leaf() for _ in range(draw(st.integers(1, 4)))]
    seed = draw(st.integers(0, 2**32 - 1))
    cells = np.random.default_rng(seed).integers(0, len(leaves), CELLS).astype(np.uint32)
    return H1(workers, cells, leaves)


def naive_tags(rows: QueryRows, first: H1) -> list[list[tuple[int, int, int]]]:
    """(cell, term, worker) of each row, from the definition."""
    off, cell = GRID.cover(rows.box_off, rows.box)
    out = []
    for i in range(len(rows)):
        terms = rows.term[rows.term_off[i] : rows.term_off[i + 1]].tolist()
        posted = [t for j, t in enumerate(terms) if int(rows.post[i]) >> j & 1]
        keys = [(c, t) for c in cell[off[i] : off[i + 1]].tolist() for t in posted]
        owner = first.owners(
            np.array([k[0] for k in keys], np.uint32), np.array([k[1] for k in keys], np.uint64)
        )
        out.append([(*key, w) for key, w in zip(keys, owner.tolist(), strict=True)])
    return out


def listed(tags: QueryTags) -> list[list[tuple[int, int, int]]]:
    flat = list(zip(tags.cell.tolist(), tags.term.tolist(), tags.worker.tolist(), strict=True))
    return [flat[a:b] for a, b in zip(tags.off[:-1], tags.off[1:], strict=True)]


@settings(deadline=None, max_examples=60)
@given(h1(), st.lists(row(), min_size=1, max_size=12), st.data())
def test_counts_are_those_of_a_dictionary(first: H1, rows: list[Row], data: st.DataObject) -> None:
    gridt = Gridt(first, GRID)
    batch = query_rows(rows)
    tags = gridt.expand(batch)
    assert listed(tags) == naive_tags(batch, first)
    gridt.insert(tags)
    gridt.insert(tags)
    gone = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    gridt.retire(tags.of(gone))
    gridt.retire(tags)
    model = Counter(
        (c, t, w) for r, g in zip(listed(tags), gone, strict=True) if not g for c, t, w in r
    )
    assert gridt.counts() == {(c, t): (w, n) for (c, t, w), n in model.items()}
    assert len(gridt) == len(model)
    assert set(gridt.levels) == {c >> 28 for c, _, _ in model}
    gridt.retire(tags.of(~gone))
    assert gridt.counts() == {}
    assert gridt.levels == []


def test_the_table_grows_and_shrinks_without_losing_a_unit() -> None:
    cells = np.zeros(CELLS, np.uint32)
    gridt = Gridt(
        H1(3, cells, [HashedLeaf((0, 1, 2), np.empty(0, np.uint64), np.empty(0, np.uint16))]), GRID
    )
    rng = np.random.default_rng(5)
    n = 30_000
    cell = rng.integers(0, CELLS, n).astype(np.uint32)
    term = rng.integers(1, 200, n).astype(np.uint64)
    tags = QueryTags(np.arange(n + 1), cell, term, gridt.h1.owners(cell, term), term)
    gridt.insert(tags)
    half = rng.random(n) < 0.5
    gridt.retire(tags.of(half))
    left = tags.of(~half)
    model = Counter(zip(left.cell.tolist(), left.term.tolist(), strict=True))
    assert {k: c for k, (_, c) in gridt.counts().items()} == model
    with pytest.raises(GridtError, match="H2 has no query"):
        gridt.retire(tags)


def test_a_table_that_is_full_at_the_last_tag_grows_for_it() -> None:
    none = np.empty(0, np.uint64), np.empty(0, np.uint16)
    gridt = Gridt(H1(1, np.zeros(CELLS, np.uint32), [HashedLeaf((0,), *none)]), GRID)
    for term in range(1, 3_001):  # one at a time, past 5/8 of 4096
        one = np.array([term], np.uint64)
        gridt.insert(
            QueryTags(np.arange(2), np.zeros(1, np.uint32), one, np.zeros(1, np.uint16), one)
        )
    assert {t for _, t in gridt.counts()} == set(range(1, 3_001))
    unknown = np.array([7000], np.uint64)
    tags = QueryTags(np.arange(2), np.zeros(1, np.uint32), unknown, np.zeros(1, np.uint16), unknown)
    with pytest.raises(GridtError, match="cell 0, term 7000"):  # also where it is the first
        gridt.retire(tags)


@settings(deadline=None, max_examples=60)
@given(
    h1(),
    st.lists(row(), max_size=8),
    st.lists(
        st.tuples(longitude, latitude, st.sets(st.sampled_from(TERMS), max_size=6)), max_size=12
    ),
)
def test_routing_is_that_of_a_dictionary(
    first: H1, rows: list[Row], posts: list[tuple[float, float, set[int]]]
) -> None:
    gridt = Gridt(first, GRID)
    tags = gridt.expand(query_rows(rows))
    gridt.insert(tags)
    held = {(c, t): w for r in listed(tags) for c, t, w in r}
    terms = [tuple(sorted(p[2])) for p in posts]
    lon, lat, off, term = objects([p[0] for p in posts], [p[1] for p in posts], terms)
    wanted: dict[int, list[int]] = {}
    cells = [GRID.cells(lon, lat, level).tolist() for level in range(GRID.levels)]
    for i in range(len(posts)):
        units = [(level[i], t) for level in cells for t in terms[i]]
        for w in {held[u] for u in units if u in held}:
            wanted.setdefault(w, []).append(i)
    shares, discarded = gridt.route(lon, lat, off, term)
    assert {s.worker: s.row.tolist() for s in shares} == wanted
    assert [s.worker for s in shares] == sorted(wanted)
    assert discarded == len(posts) - len({i for rows in wanted.values() for i in rows})
    for s in shares:
        at = s.row.tolist()
        assert s.lon.tolist() == lon[at].tolist()
        assert s.lat.tolist() == lat[at].tolist()
        assert s.term_off[0] == 0
        got = [
            tuple(s.term[a:b].tolist()) for a, b in zip(s.term_off, s.term_off[1:], strict=False)
        ]
        assert got == [terms[i] for i in at]
        probed = [[{(level[i], t) for level in cells} for t in terms[i]] for i in at]
        flags = [any(held.get(u) == s.worker for u in of) for some in probed for of in some]
        assert s.chosen.tolist() == np.packbits(flags, bitorder="little").tolist()


@settings(deadline=None, max_examples=100)
@given(h1(), st.lists(row(), min_size=1, max_size=8), st.data())
def test_an_object_meets_every_query_it_could_match(
    first: H1, rows: list[Row], data: st.DataObject
) -> None:
    """In a box and with a posting term, an object reaches the worker that holds the query
    under the object's own tag: (a) to (c) of algorithms.md 1.2."""
    gridt = Gridt(first, GRID)
    tags = gridt.expand(query_rows(rows))
    gridt.insert(tags)
    mine = data.draw(st.integers(0, len(rows) - 1))
    query = rows[mine]
    lon0, lat0, lon1, lat1 = data.draw(st.sampled_from(query.boxes))
    lon, lat = data.draw(between(lon0, lon1)), data.draw(between(lat0, lat1))
    # Regions that touch 180 degrees or a pole come with a box at -180 (space/regions.py).
    assume((lon < 180 and abs(lat) < 90) or lon0 == -180)
    common = query.terms[data.draw(st.sampled_from(query.post))]
    terms = tuple(sorted({common, *data.draw(st.sets(st.sampled_from(TERMS), max_size=3))}))
    shares, discarded = gridt.route(*objects([lon], [lat], [terms]))
    assert discarded == 0
    x, y = np.array([lon]), np.array([lat])
    cells = {int(GRID.cells(x, y, level)[0]) for level in range(GRID.levels)}
    holders = {w for c, t, w in listed(tags)[mine] if c in cells and t == common}
    assert len(holders) == 1
    assert holders <= {s.worker for s in shares}


@settings(deadline=None, max_examples=40)
@given(h1(), st.lists(row(), max_size=8))
def test_each_worker_is_told_its_own_tags(first: H1, rows: list[Row]) -> None:
    gridt = Gridt(first, GRID)
    tags = gridt.expand(query_rows(rows))
    shares = gridt.split(tags)
    assert len(shares) == first.workers
    for worker, share in enumerate(shares):
        want = {i: [(c, t) for c, t, w in r if w == worker] for i, r in enumerate(listed(tags))}
        pairs = list(zip(share.cell.tolist(), share.term.tolist(), strict=True))
        got = {
            i: pairs[a:b]
            for i, a, b in zip(share.row.tolist(), share.off[:-1], share.off[1:], strict=True)
        }
        assert got == {i: r for i, r in want.items() if r}


def test_an_object_of_ten_thousand_terms() -> None:
    gridt = Gridt(H1(2, np.zeros(CELLS, np.uint32), [HashedLeaf((1,))]), GRID)
    gridt.insert(gridt.expand(query_rows([Row((9_999,), (0,))])))
    terms = tuple(range(1, 10_001))
    shares, discarded = gridt.route(*objects([0.0, 1.0, 2.0], [0.0] * 3, [(), terms, (4,)]))
    assert discarded == 2
    assert [(s.row.tolist(), s.term.tolist()) for s in shares] == [([1], list(terms))]


Sent = set[tuple[int, int, int]]  # object, worker, term that chose it


def routed(gridt: Gridt, lon: F64, lat: F64, off: I64, term: U64) -> Sent:
    found: Sent = set()
    for share in gridt.route(lon, lat, off, term)[0]:
        row = np.repeat(share.row, np.diff(share.term_off))
        bits = np.unpackbits(share.chosen, bitorder="little")
        assert not bits[len(row) :].any()
        at = np.flatnonzero(bits)
        assert set(row[at].tolist()) == set(share.row.tolist()), "each object has such a term"
        both = zip(row[at].tolist(), share.term[at].tolist(), strict=True)
        found |= {(i, share.worker, t) for i, t in both}
    return found


def wanted(rows: QueryRows, plan: H1, lon: F64, lat: F64, off: I64, term: U64) -> Sent:
    """Whom one plan sends an object to, for which terms, by brute force over its queries."""
    tags = QueryTagger(plan, GRID).expand(rows)
    owners = set(zip(tags.cell.tolist(), tags.term.tolist(), tags.worker.tolist(), strict=True))
    found: Sent = set()
    for level in range(GRID.levels):
        for i, cell in enumerate(GRID.cells(lon, lat, level).tolist()):
            mine = set(term[off[i] : off[i + 1]].tolist())
            found |= {(i, w, t) for c, t, w in owners if c == cell and t in mine}
    return found


def holders(gridt: Gridt, rows: QueryRows) -> set[tuple[int, int, int, int]]:
    """(handle, cell, term, worker) of what the workers are sent."""
    found = set()
    for worker, share in enumerate(gridt.split(gridt.expand(rows))):
        for i, at in enumerate(share.row.tolist()):
            for k in range(share.off[i], share.off[i + 1]):
                unit = (int(rows.handle[at]), int(share.cell[k]), int(share.term[k]), worker)
                assert unit not in found, "a tag is sent once"
                found.add(unit)
    return found


def owned(rows: QueryRows, plan: H1) -> set[tuple[int, int, int, int]]:
    return holders(Gridt(plan, GRID), rows)


@pytest.mark.takes_turns
@settings(deadline=None, max_examples=100)
@given(st.data())
def test_a_move_and_two_plans_that_coexist(data: st.DataObject) -> None:
    one, other = data.draw(h1()), data.draw(h1())
    drawn = data.draw(st.lists(row(), min_size=2, max_size=20))
    rows = query_rows([r._replace(handle=i + 1) for i, r in enumerate(drawn)])
    apart = data.draw(st.integers(0, len(drawn)))
    coexist = data.draw(st.booleans())
    old, new = rows.take(np.arange(apart)), rows.take(np.arange(apart, len(rows)))
    spots = data.draw(st.lists(st.tuples(longitude, latitude), min_size=1, max_size=8))
    terms = [data.draw(st.sets(st.sampled_from(TERMS), max_size=5)) for _ in spots]
    posted = objects(
        [s[0] for s in spots], [s[1] for s in spots], [tuple(sorted(t)) for t in terms]
    )
    gridt = Gridt(one, GRID)

    def insert(some: QueryRows) -> None:
        gridt.insert(gridt.expand(some), some.handle)

    insert(old)
    assert routed(gridt, *posted) == wanted(old, one, *posted)
    if coexist:
        gridt.follow(CompiledRoutes(one, 1, young=other, apart=apart))
        insert(new)
        both = wanted(old, one, *posted) | wanted(new, other, *posted)
        assert routed(gridt, *posted) == both
        assert holders(gridt, rows) == owned(old, one) | owned(new, other)
        gridt.follow(CompiledRoutes(one, 1, other=other, young=other, apart=apart))
        assert holders(gridt, rows) == owned(old, one) | owned(rows, other)
    else:
        gridt.follow(CompiledRoutes(one, 1, other=other))
        insert(new)
        both = wanted(rows, one, *posted)
        assert holders(gridt, rows) == owned(rows, one) | owned(rows, other)
    assert routed(gridt, *posted) == both
    gone = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    dead, left = rows.take(np.flatnonzero(gone)), rows.take(np.flatnonzero(~gone))
    before = data.draw(st.booleans())
    if before:
        gridt.retire(gridt.expand(dead), dead.handle)
    gridt.follow(CompiledRoutes(other, 2, other=one, switched=True))
    if not before:
        gridt.retire(gridt.expand(dead), dead.handle)
    assert routed(gridt, *posted) == wanted(left, other, *posted)
    gridt.follow(CompiledRoutes(other, 2))
    assert holders(gridt, rows) == owned(rows, other)
    assert routed(gridt, *posted) == wanted(left, other, *posted)
    half = len(left) // 2
    live, dying = left.take(np.arange(half)), left.take(np.arange(half, len(left)))
    owns = [worker for _, _, _, worker in owned(live, other)]
    held = gridt.postings([gridt.expand(dying)])
    assert held.tolist() == [*np.bincount(owns, minlength=other.workers).tolist(), 0]
    gridt.retire(gridt.expand(left), left.handle)
    assert len(gridt) == 0
    assert not gridt.levels


def test_many_units_find_a_table_that_is_large_enough() -> None:
    from ps2stream.routing.h1 import HashedLeaf

    cells = np.zeros(1 << 9, np.uint32)
    one, other = (H1(3, cells, [HashedLeaf((w,))]) for w in (1, 2))
    gridt = Gridt(one, GRID)
    rows = query_rows([Row((i + 1,), (0,), handle=i + 1) for i in range(20_000)])
    gridt.insert(gridt.expand(rows))
    size = len(gridt)
    gridt.follow(CompiledRoutes(other, 2))
    assert len(gridt) == size
    gridt.retire(gridt.expand(rows))
    assert len(gridt) == 0
