"""The port to a worker's index, and the index that is used behind it."""

from __future__ import annotations

import inspect

import pytest

from ps2stream.dispatcher.ports import NewIndex, TrialIndex
from ps2stream.workers.gi2 import GI2
from tests.support.routers import GRID, machine
from tests.support.routing import Row, object_rows, query_rows

NEW: NewIndex = GI2


@pytest.mark.parametrize("name", ["insert", "match"])
def test_an_index_is_called_as_the_port_says(name: str) -> None:
    want, have = (inspect.signature(getattr(of, name)).parameters for of in (TrialIndex, GI2))
    assert list(have)[: len(want)] == list(want)
    beyond = list(have.values())[len(want) :]
    assert all(parameter.default is not parameter.empty for parameter in beyond)


def test_an_index_of_one_query_finds_its_rows() -> None:
    query = query_rows([Row((7, 9), (0,), ((0.0, 0.0, 30.0, 30.0),), lsn=3, handle=3)])
    tags = machine().gridt.expand(query)
    index = NEW(GRID)
    index.insert(query, tags.off, tags.cell, tags.term)
    some = object_rows([10.0, 40.0, 20.0, 10.0], [10.0] * 4, [(7, 9), (7, 9), (7, 9), (8,)])
    columns = some.lon, some.lat, some.term_off, some.term
    assert sorted(index.match(3, *columns).row.tolist()) == [0, 2]
    assert index.match(2, *columns).row.tolist() == [], "it was not inserted yet"
