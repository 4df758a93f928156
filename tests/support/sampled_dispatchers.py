"""Dispatchers that answer requests for samples of hot cells, by their real gridt and reservoir."""

from __future__ import annotations

import numpy as np

from ps2stream.dispatcher import hot_cells
from ps2stream.dispatcher.gridt import Gridt
from ps2stream.dispatcher.literal_table import LiteralTable
from ps2stream.dispatcher.reservoir import ObjectReservoir
from ps2stream.language.analyzer import Analyzer
from ps2stream.language.expression import watch_literals
from ps2stream.language.literals import NO_LITERALS, LiteralView
from ps2stream.language.object_terms import find_terms
from ps2stream.protocol.frame import I64, U8, decode, strings_to_column
from ps2stream.protocol.messages.loads import SampleReport, SampleRequest
from ps2stream.protocol.rows import ObjectRows
from ps2stream.routing.plan import hash_units
from ps2stream.routing.tags import QueryTags
from ps2stream.space.grid import Grid
from tests.support.controller_world import halves

PLAN = halves()
GRID: Grid = PLAN.grid
ANALYZER = Analyzer(PLAN.analysis)
WORDS = [f"w{i}" for i in range(8)]
HOT = 0  # a cell of worker 0


def inside(cell: int) -> tuple[float, float]:
    west, south, width, height = GRID.bounds(cell)
    return west + width / 2, south + height / 2


def objects(
    texts: list[str],
    cells: list[int],
    opaque: tuple[I64, U8] | None = None,
    literals: LiteralView = NO_LITERALS,
) -> ObjectRows:
    text = strings_to_column(texts)
    lon, lat = (np.array(side) for side in zip(*map(inside, cells), strict=True))
    ids = strings_to_column([str(i) for i in range(len(texts))])
    opaque = opaque or (np.zeros(0, np.int64), np.zeros(0, np.uint8))
    terms = find_terms(ANALYZER, text, opaque, literals)
    return ObjectRows(*ids, np.arange(len(texts)), lon, lat, *text, *terms, *opaque)


class SampledDispatcher:
    """A dispatcher with `posted` live queries by cell and unit."""

    def __init__(self, index: int, posted: dict[tuple[int, str], int]) -> None:
        self.index = index
        h1 = PLAN.compile(ANALYZER)
        self.gridt = Gridt(h1, GRID)
        cell = np.array([c for (c, _), n in posted.items() for _ in range(n)], np.uint32)
        words = [w for (_, w), n in posted.items() for _ in range(n)]
        term = hash_units(ANALYZER, words)
        off = np.arange(len(cell) + 1)
        self.gridt.insert(QueryTags(off, cell, term, h1.owners(cell, term), np.zeros_like(term)))
        self.literals = LiteralTable()
        self.literals.add(watch_literals(ANALYZER, words))
        self.reservoir = ObjectReservoir(5000, seed=index)

    def told(self, ask: SampleRequest, route: int | None = None) -> SampleReport:
        route = PLAN.route if route is None else route
        report = hot_cells.report(ask, self.index, route, self.reservoir, self.gridt, self.literals)
        sent = decode(report.encode())
        assert isinstance(sent, SampleReport)
        return sent


def posted(number: int = 5) -> dict[tuple[int, str], int]:
    return {(HOT, word): number + i for i, word in enumerate(WORDS)}


def ask(*cells: int) -> SampleRequest:
    return SampleRequest(3, 1, np.array(cells, np.uint32))
