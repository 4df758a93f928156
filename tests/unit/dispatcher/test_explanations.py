"""How a query and an object would meet: cells, terms and workers."""

from __future__ import annotations

import numpy as np

from ps2stream.dispatcher.explanations import expand_query, explain_meeting
from ps2stream.dispatcher.gateway import MatchExplanation
from ps2stream.dispatcher.router import RouterMachine
from ps2stream.protocol.rows import QueryRows
from ps2stream.routing.h1 import HashedReplica
from ps2stream.workers.gi2 import GI2
from tests.support.routers import EAST, WEST, insert, machine
from tests.support.routing import Row, object_rows, query_rows
from tests.support.shards import place_of, shard_of


def query(*rows: Row) -> QueryRows:
    return query_rows([row._replace(lsn=1, handle=1) for row in rows])


def told(router: RouterMachine, of: QueryRows, lon: float, *terms: int) -> MatchExplanation:
    thing = object_rows([lon], [0.0], [terms])
    return explain_meeting(expand_query(router, of), GI2, thing)


def test_a_pair_that_matches_meets_at_the_owner_of_its_unit() -> None:
    found = told(machine(), query(Row((7,), (0,), (EAST,))), 20.0, 3, 7)
    assert found.matches
    assert (found.cells.tolist(), found.terms.tolist(), found.postings) == ([found.here], [7], 1)
    assert (found.owners, found.sent_to) == (((1,),), (1,))


def test_an_object_without_the_posting_term_is_sent_to_nobody() -> None:
    found = told(machine(), query(Row((7,), (0,), (EAST,))), 20.0, 8)
    assert not found.matches
    assert (found.owners, found.sent_to) == (((1,),), ())


def test_an_object_elsewhere_meets_no_posting() -> None:
    found = told(machine(), query(Row((7,), (0,), (EAST,))), -20.0, 7)
    assert not found.matches
    assert found.here not in found.cells.tolist()
    assert (found.owners, found.sent_to) == ((), ())


def test_an_object_that_is_sent_need_not_match() -> None:
    """The region ends within the cell, beside the object."""
    found = told(machine(), query(Row((7,), (0,), ((19.0, 0.5, 20.0, 1.0),))), 20.0, 7)
    assert not found.matches
    assert found.sent_to == (1,)


def test_an_explanation_changes_nothing_and_does_not_look_at_other_queries() -> None:
    router = machine()
    router.on(insert(1, box=EAST))
    router.on(insert(2, term=8, box=WEST))
    before = router.gridt.counts()
    found = told(router, query(Row((7,), (0,), (EAST,))), -20.0, 8)
    assert (found.matches, found.sent_to) == (False, ())
    assert router.gridt.counts() == before
    assert found.plan_version == router.owned_by(1)
    assert found.cells.tolist() == [cell for cell, term in before if term == 7]
    assert [found.here] == [cell for cell, term in before if term == 8]


def test_of_a_replicated_unit_all_workers_are_named_and_one_gets_the_object() -> None:
    hot = HashedReplica(None, np.uint64(7), (2, 0))
    asked = query(Row((7, 8), (0, 1), (EAST,)))
    router = machine(replicas=[hot])
    found = told(router, asked, 20.0, 7)
    assert (found.terms.tolist(), found.owners) == ([7, 8], ((2, 0), (1,)))
    assert (found.postings, found.sent_to, found.sent_to_one_of) == (2, (), ((2, 0),))
    both = told(router, asked, 20.0, 7, 8)
    assert (both.matches, both.sent_to, both.sent_to_one_of) == (True, (1,), ((2, 0),))
    assert told(router, asked, 20.0, 8).sent_to_one_of == ()


def test_a_worker_that_gets_the_object_anyhow_serves_its_group_too() -> None:
    hot = HashedReplica(None, np.uint64(7), (2, 1))
    found = told(machine(replicas=[hot]), query(Row((7, 8), (0, 1), (EAST,))), 20.0, 7, 8)
    assert (found.owners, found.sent_to, found.sent_to_one_of) == (((2, 1), (1,)), (1,), ())


def test_of_a_sharded_unit_the_worker_with_the_query_is_named_and_all_get_the_object() -> None:
    hot = HashedReplica(None, np.uint64(7), (2, 0), sharded=True)
    found = told(machine(replicas=[hot]), query(Row((7, 8), (0, 1), (EAST,))), 20.0, 7, 8)
    holder = shard_of((2, 0), 7, place_of(EAST))
    assert (found.owners, found.shards) == (((holder,), (1,)), ((2, 0), ()))
    assert (found.matches, found.sent_to, found.sent_to_one_of) == (True, (0, 1, 2), ())
