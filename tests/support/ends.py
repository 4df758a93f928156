"""Queries that end, as requests to the sequencer."""

from __future__ import annotations

import itertools

import numpy as np

from ps2stream.language.analyzer import Analyzer, Frequencies
from ps2stream.language.expression import compile_column
from ps2stream.language.query_rows import build_rows, delete_rows
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.messages.updates import UpdateRequest
from ps2stream.protocol.rows import QueryRows
from ps2stream.protocol.validity import add_validity
from ps2stream.space.regions import World
from tests.sim import hostile

ANALYZER = Analyzer(hostile.ANALYSIS)
FREQUENCIES = Frequencies({}, np.zeros(0, np.uint64))
_numbers = itertools.count(1)


def ending_rows(name: str, until: int, retro: bool = False) -> QueryRows:
    """The insert of a query that ends then; 0: never."""
    compiled = compile_column(*strings_to_column(["flood"]), ANALYZER, FREQUENCIES)
    rows = build_rows(strings_to_column([name]), compiled, [World()])
    return add_validity(rows, np.array([until], np.int64), np.array([retro]))


def ask(rows: QueryRows, session: str = "s", request_id: str = "") -> UpdateRequest:
    """A request for one row, which has a number of its own."""
    columns = (*strings_to_column([session]), *strings_to_column([request_id]))
    return UpdateRequest(0, 0, next(_numbers), 0, np.frombuffer(rows.encode(), np.uint8), *columns)


def ending(name: str, until: int) -> UpdateRequest:
    """A request to insert a query that ends then."""
    return ask(ending_rows(name, until))


def deleting(name: str) -> UpdateRequest:
    """A request to delete a query."""
    return ask(delete_rows(strings_to_column([name])), "")
