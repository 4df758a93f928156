"""gridt while plans change: who serves a unit, who is sent updates, before, amid and after."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.dispatcher.gridt import Gridt
from ps2stream.protocol.frame import F64, I64, U64
from ps2stream.protocol.rows import QueryRows
from ps2stream.routing.h1 import H1
from ps2stream.routing.plan_follower import CompiledRoutes
from ps2stream.routing.tags import QueryTagger
from tests.support.routing import Row, objects, query_rows
from tests.unit.dispatcher.test_gridt import GRID, TERMS, h1, latitude, longitude, row

Sent = set[tuple[int, int]]  # object, worker


def routed(gridt: Gridt, lon: F64, lat: F64, off: I64, term: U64) -> Sent:
    shares, _ = gridt.route(lon, lat, off, term)
    return {(int(i), share.worker) for share in shares for i in share.row}


def wanted(rows: QueryRows, plan: H1, lon: F64, lat: F64, off: I64, term: U64) -> Sent:
    """Whom one plan sends an object to, by brute force over its queries."""
    tags = QueryTagger(plan, GRID).expand(rows)
    owners = set(zip(tags.cell.tolist(), tags.term.tolist(), tags.worker.tolist(), strict=True))
    found: Sent = set()
    for level in range(GRID.levels):
        for i, cell in enumerate(GRID.cells(lon, lat, level).tolist()):
            mine = set(term[off[i] : off[i + 1]].tolist())
            found |= {(i, w) for c, t, w in owners if c == cell and t in mine}
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


@settings(deadline=None, max_examples=150)
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
    assert held.tolist() == np.bincount(owns, minlength=other.workers).tolist()
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
