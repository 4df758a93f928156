"""Queries of a workload with two predicates each, and the attributes of its objects.

equal   each object has two texts, and each query equals both. With one value of either, every
        object satisfies all queries' predicates, so that the matches are those without them; with
        more values fewer match, and those that are rarer than a query's words are what it is found
        by.
range   each object has two numbers, and each query compares both: on average half of the objects
        satisfy a comparison, so that a quarter of the matches is left.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from ps2stream.benchmarks.workload import Workload
from ps2stream.language.analyzer import Analyzer
from ps2stream.language.predicate_terms import hash_predicate, kind_of, put_comparison
from ps2stream.language.predicates import COMPARISONS, EQUAL, Predicate
from ps2stream.language.values import number_value, text_value
from ps2stream.protocol.frame import I64, U8, U64, Array
from ps2stream.protocol.opaque import OpaqueColumns, pack_opaque
from ps2stream.protocol.rows import PROG_AND, PROG_NOTES, PROG_OR, ExpressionForm, QueryRows
from ps2stream.v1.object_pb2 import Attributes

PredicateKind = Literal["equal", "range"]
_NAMES: Final = {"equal": ("network", "source"), "range": ("depth", "magnitude")}
_PAIRS: Final = 50_000
_ORDERS: Final = COMPARISONS[:4]  # but for !=, which nearly all satisfy


class QueryPredicates:
    """Two predicates for each query of a workload, whose rows have the forms ALL and ANY, and two
    attributes for each of its objects.

    values: how many values an attribute has, or how many thresholds it is compared with. objects:
    the terms of the texts, which say what is rarer than an equality.
    """

    def __init__(
        self,
        kind: PredicateKind,
        values: int,
        load: Workload,
        objects: tuple[I64, U64],
        analyzer: Analyzer,
        seed: int,
    ) -> None:
        rng = np.random.default_rng([seed, 6])
        shape = len(load.interests.every), 2
        self._kind, self._values, self._analyzer = kind, values, analyzer
        self._wanted = rng.integers(0, values, shape)
        self._order = rng.integers(0, len(_ORDERS), shape)
        self._held: Array = rng.random((len(load.posts.lon), 2))
        self._words = np.unique(objects[1], return_counts=True)
        self._term: list[U64] = []  # of either attribute, by the number of the value
        self._counts: list[I64] = []
        if kind == "equal":
            self._held = (self._held * values).astype(np.int64)
            self._counts = [np.bincount(held, minlength=values) for held in self._held.T]
        for k in range(2):
            distinct = [self._make_predicate(k, v, 0) for v in range(values if self._counts else 1)]
            self._term.append(
                np.array([hash_predicate(analyzer.keys, p) for p in distinct], np.uint64)
            )

    def _make_predicate(self, k: int, value: int, order: int) -> Predicate:
        """Returns the predicate on attribute k with this value and operator, by their numbers."""
        name = _NAMES[self._kind][k]
        if self._kind == "equal":
            return Predicate(name, EQUAL, text_value(f"v{value}"))
        return Predicate(name, _ORDERS[order], number_value((value + 0.5) / self._values))

    def pack_attributes(self) -> tuple[I64, U8]:
        """Returns the opaque column of the objects."""
        parts = []
        for held in self._held.tolist():
            found = Attributes()
            for name, value in zip(_NAMES[self._kind], held, strict=True):
                if self._kind == "equal":
                    found.values[name].text = f"v{value}"
                else:
                    found.values[name].number = value
            parts.append(found.SerializeToString(deterministic=True))
        off = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(p) for p in parts], out=off[1:])
        data = np.frombuffer(b"".join(parts), np.uint8)
        return pack_opaque(OpaqueColumns(off, data, np.zeros_like(off), np.zeros(0, np.uint8)))

    def holds(self, query: int, post: int) -> bool:
        """Returns whether an object satisfies both predicates of a query."""
        held = [
            text_value(f"v{x}") if self._kind == "equal" else number_value(x)
            for x in self._held[post].tolist()
        ]
        attributes = dict(zip(_NAMES[self._kind], held, strict=True))
        return all(
            self._make_predicate(k, self._wanted[query, k], self._order[query, k]).holds(attributes)
            for k in range(2)
        )

    def estimate_share(self) -> float:
        """Returns the share of the pairs of an object and a query whose predicates it satisfies, by
        some of them."""
        rng = np.random.default_rng(7)
        query = rng.integers(0, len(self._wanted), _PAIRS).tolist()
        post = rng.integers(0, len(self._held), _PAIRS).tolist()
        return float(np.mean([self.holds(q, p) for q, p in zip(query, post, strict=True)]))

    def change_rows(self, rows: QueryRows, first: int) -> QueryRows:
        """Returns the rows of the queries from number `first` on with their predicates. A query is
        posted under an equality that is rarer than its words, as the compiler does it."""
        n, wanted = len(rows), self._wanted[first : first + len(rows)]
        own = np.stack(
            [t[v if self._counts else v * 0] for t, v in zip(self._term, wanted.T, strict=True)], 1
        )
        number = np.concatenate([np.repeat(np.arange(n), np.diff(rows.term_off)),
                                 np.repeat(np.arange(n), 2)])  # fmt: skip
        term = np.concatenate([rows.term, own.ravel()])
        place = np.arange(len(rows.term)) - rows.term_off[number[: len(rows.term)]]
        posted = rows.post[number[: len(place)]] >> place.astype(np.uint64) & np.uint64(1)
        posted, equal = self._post_rarest(rows.term, posted, number[: len(place)], wanted)
        posted = np.concatenate([posted, equal.ravel()])
        order = np.lexsort((term, number))
        off = rows.term_off + 2 * np.arange(n + 1)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order)) - off[number[order]]
        bits = posted[order] << (np.arange(len(order)) - off[number[order]]).astype(np.uint64)
        prog_off, prog = self._write_programs(rows, rank, first)
        form = rows.form.copy()
        if self._kind == "range":
            form[:] = ExpressionForm.PROGRAM
        form[(rows.form == ExpressionForm.ANY) & (np.diff(rows.term_off) > 1)] = (
            ExpressionForm.PROGRAM
        )
        return rows.replace(
            form=form, post=np.bitwise_or.reduceat(bits, off[:-1]), term_off=off, term=term[order],
            prog_off=prog_off, prog=prog,
        )  # fmt: skip

    def _post_rarest(self, term: U64, posted: U64, number: I64, wanted: I64) -> tuple[U64, U64]:
        """Returns which words of queries are posted, of those that were, and which equalities."""
        equal = np.zeros((len(wanted), 2), np.uint64)
        if not self._counts:
            return posted, equal
        counts = np.stack([c[v] for c, v in zip(self._counts, wanted.T, strict=True)], 1)
        rarer = counts.argmin(1)
        known, of_word = self._words
        at = np.minimum(np.searchsorted(known, term), len(known) - 1)
        count = np.where(known[at] == term, of_word[at], 0)
        yields = (posted != 0) & (counts.min(1)[number] < count)
        equal[number[yields], rarer[number[yields]]] = 1
        return np.where(yields, np.uint64(0), posted), equal

    def _write_programs(self, rows: QueryRows, rank: I64, first: int) -> tuple[I64, Array]:
        """Returns the programs and notes; rank: of each word of each query, then of their two
        predicates, among the terms."""
        words = len(rows.term)
        off, out = np.zeros(len(rows) + 1, np.int64), list[int]()
        place, offs = rank.tolist(), rows.term_off.tolist()
        every = (rows.form == ExpressionForm.ALL).tolist()
        order, wanted = self._order.tolist(), self._wanted.tolist()
        kind = int(kind_of(self._make_predicate(0, 0, 0))) << 8
        for i in range(len(rows)):
            own = place[words + 2 * i], place[words + 2 * i + 1]
            a, b = offs[i], offs[i + 1]
            if self._kind == "range" or (b - a > 1 and not every[i]):
                for k in range(a, b):
                    out.append(place[k])
                    if k > a:
                        out.append(PROG_AND if every[i] else PROG_OR)
                for k in range(2):
                    if self._kind == "equal":
                        out.append(own[k])
                    else:
                        q = first + i
                        predicate = self._make_predicate(k, wanted[q][k], order[q][k])
                        put_comparison(predicate, own[k], out)
                    out.append(PROG_AND)
            out += own[0] | kind, 0, own[1] | kind, 0, PROG_NOTES - 2
            off[i + 1] = len(out)
        return off, np.array(out, np.int16)
