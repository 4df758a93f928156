"""What the planner counts in a batch: the same code under NumPy and on Spark's executors.

Each function takes one Arrow batch and returns counts per term or per unit; `planner/sample.py`
and `planner/spark.py` add them up.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa

from ps2stream.errors import invalid, short
from ps2stream.language.analyzer import TOP, Analyzer, Frequencies
from ps2stream.language.attribute_kernels import list_attributes
from ps2stream.language.attribute_values import values_of
from ps2stream.language.expression import CompiledColumn, compile_column, hash_literals
from ps2stream.language.lexemes import Lexeme, LexemeKind, split_lexemes
from ps2stream.language.parser import read_predicate_literals
from ps2stream.language.posting import list_pairs
from ps2stream.language.predicates import (
    COUNTED_LETTERS,
    EQUAL,
    EXISTS,
    Predicate,
    equality_text,
    predicate_text,
    unit_text,
)
from ps2stream.planner.objects import opaque_of
from ps2stream.planner.statistics import TOP_TERM
from ps2stream.protocol.frame import F64, I64, U8, U64, Array, column_to_strings, row_of, sealed
from ps2stream.space.grid import Grid
from ps2stream.v1 import object_pb2

QUERIES = pa.schema(
    [
        ("id", pa.string()),
        ("expression", pa.string()),
        ("box", pa.binary()),  # float64: lon_min, lat_min, lon_max, lat_max; one box or two
        ("live", pa.int64()),
        ("inserts", pa.int64()),
        ("deletes", pa.int64()),
    ]
)
"""Queries; 0 or 1 each: live at the end of the period, inserted in it, deleted in it."""

TERMS = pa.schema([("term", pa.string()), ("objects", pa.int64())])
POSTINGS = pa.schema(
    [
        ("cell", pa.int64()),  # COARSE: the queries of coarser levels, with TOP_TERM
        ("term", pa.string()),
        ("live", pa.int64()),
        ("inserts", pa.int64()),
        ("deletes", pa.int64()),
    ]
)
SIDES = pa.schema([("axis", pa.int64()), ("side", pa.int64()), ("queries", pa.int64())])
COARSE = -1
_NEEDS_LEXER = re.compile(r'["=<>]| EXISTS\b')  # of phrases and predicates
_STEPS = 16  # classes of a side's length per doubling


def ragged(column: Any, kind: Any = None) -> tuple[I64, U8]:
    """Returns an Arrow column of strings (or bytes: kind) without nulls as a ragged column."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    column = column.cast(kind or pa.large_string())
    n, at = len(column), column.offset
    _, off, data = column.buffers()
    offsets = np.frombuffer(off, np.int64)[at : at + n + 1] if n else np.zeros(1, np.int64)
    return offsets, np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)


def object_terms(objects: Any, analyzer: Analyzer) -> Any:
    """Returns TERMS: how many objects of a batch (objects.OBJECTS) have each word, each attribute,
    and each attribute with a value."""
    _, found = analyzer.analyse(*ragged(objects.column("text")))
    term, count = np.unique(found, return_counts=True)
    # Tokens do not cross line ends, so the joined text has exactly the tokens of its lines.
    words = analyzer.tokens("\n".join(objects.column("text").to_pylist()))
    at, held = find(term, analyzer.hash_terms(words))
    names, counts = _count_attributes(*opaque_of(objects), analyzer)
    return pa.table(
        [
            np.concatenate([np.array(words, object)[held], np.array(names, object)]),
            np.concatenate([count[at[held]], counts]),
        ],
        schema=TERMS,
    )


def _count_attributes(off: I64, data: U8, analyzer: Analyzer) -> tuple[list[str], I64]:
    """Returns the literals that attributes are there and equal their values, and how many objects
    of an opaque column satisfy each."""
    if not len(off):
        return [], np.zeros(0, np.int64)
    present, equal, begin, end = list_attributes(sealed(off), sealed(data), sealed(analyzer.keys))
    literals, counts = list[str](), list[int]()
    for term, op in ((present, EXISTS), (equal, EQUAL)):
        _, first, count = np.unique(term, return_index=True, return_counts=True)
        for at, objects in zip(first.tolist(), count.tolist(), strict=True):
            entry = object_pb2.Attributes.FromString(data[begin[at] : end[at]].tobytes())
            ((name, value),) = values_of(entry).items()
            here = predicate_text(Predicate(name, EXISTS))
            literal = here if op == EXISTS else equality_text(name, value)
            if literal is not None and len(literal) <= COUNTED_LETTERS:
                literals.append(literal)
                counts.append(objects)
    return literals, np.array(counts, np.int64)


def sides(queries: Any) -> Any:
    """Returns SIDES: how many boxes of queries have about which width (axis 0) and height (axis
    1), in classes of 2^(side / 16) degrees. Queries of the whole world are left out."""
    off, box = boxes(queries)
    wide, high = np.zeros(len(off) - 1), np.zeros(len(off) - 1)
    row = row_of(off // 4)
    rects = box.reshape(-1, 4)
    np.add.at(wide, row, rects[:, 2] - rects[:, 0])
    np.maximum.at(high, row, rects[:, 3] - rects[:, 1])
    some = (wide < 360.0) | (high < 180.0)
    axes = []
    for axis, length in enumerate((wide[some], high[some])):
        side, count = np.unique(
            np.rint(_STEPS * np.log2(np.maximum(length, 2.0**-20))).astype(np.int64),
            return_counts=True,
        )
        axes.append((np.full(len(side), axis), side, count))
    return pa.table([np.concatenate(column) for column in zip(*axes, strict=True)], schema=SIDES)


def grid_of(table: Any) -> Grid:
    """Returns Grid.for_queries of the median box over the SIDES of all batches, exact to a
    sixteenth of a doubling."""
    medians = []
    for axis in (0, 1):
        mine = table["axis"].to_numpy() == axis
        side, count = table["side"].to_numpy()[mine], table["queries"].to_numpy()[mine]
        order = np.argsort(side)
        held = np.cumsum(count[order])
        if not len(held):
            return Grid()
        half = int(np.searchsorted(2 * held, held[-1]))
        medians.append(2.0 ** (float(side[order][half]) / _STEPS))
    return Grid.for_queries(*medians)


def boxes(queries: Any) -> tuple[I64, F64]:
    """Returns the column `box` of a batch of QUERIES as in QueryRows: ragged float64."""
    off, data = ragged(queries.column("box"), pa.large_binary())
    return (off - off[0]) // 8, np.frombuffer(data[off[0] : off[-1]].tobytes(), np.float64)


def postings(queries: Any, analyzer: Analyzer, frequencies: Frequencies, grid: Grid) -> Any:
    """Returns POSTINGS of a batch of QUERIES, by the service's own posting sets and covers.

    Raises InvalidArgument naming the query of a bad expression.
    """
    compiled = compile_column(*ragged(queries.column("expression")), analyzer, frequencies)
    if compiled.errors:
        first, error = compiled.errors[0]
        name = short(queries.column("id")[first].as_py())
        raise invalid(f"query {name} expression", str(error))
    cell_off, cell = grid.cover(*boxes(queries))
    level = cell[cell_off[:-1]] >> 28
    term_off, number, words = posted_terms(compiled)
    # One posting for every posted term of a query in every cell of it.
    n_cells = np.where(level == 0, np.diff(cell_off), 0)
    pairs = n_cells * np.diff(term_off)
    row = np.repeat(np.arange(len(pairs)), pairs)
    k = np.arange(len(row)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    at = cell[cell_off[row] + k % n_cells[row]].astype(np.int64)
    names, of_number = _name_hashes(words, analyzer, compiled)
    key = at * len(names) + of_number[number[term_off[row] + k // n_cells[row]]]
    key, where = np.unique(key, return_inverse=True)
    counts, coarse = [], []
    for name in ("live", "inserts", "deletes"):
        value = queries.column(name).to_numpy().astype(np.int64)
        counts.append(np.bincount(where, value[row], len(key)).astype(np.int64))
        coarse.append(int(value[level > 0].sum()))
    table = pa.table(
        [key // max(len(names), 1), np.array(names, object)[key % max(len(names), 1)], *counts],
        schema=POSTINGS,
    )
    if any(coarse):
        last = pa.table([[COARSE], [TOP_TERM], *([n] for n in coarse)], schema=POSTINGS)
        table = pa.concat_tables([table, last])
    return table


def posted_terms(compiled: CompiledColumn) -> tuple[I64, I64, U64]:
    """Returns the terms of P(q) as a ragged column of numbers, and the distinct hashes that these
    number."""
    row = row_of(compiled.term_off)
    bit = (np.arange(len(row)) - compiled.term_off[row]).astype(np.uint64)
    held = (compiled.post[row] >> bit) & np.uint64(1) == 1
    off = np.zeros(len(compiled.form) + 1, np.int64)
    np.cumsum(np.bincount(row[held], minlength=len(compiled.form)), out=off[1:])
    words, number = np.unique(compiled.term[held], return_inverse=True)
    return off, number.astype(np.int64), words


def _name_hashes(
    hashes: U64, analyzer: Analyzer, compiled: CompiledColumn
) -> tuple[list[str], I64]:
    """Returns (the terms with these hashes, in order of the strings; the place of each hash
    there)."""
    texts = column_to_strings(compiled.canonical_off, compiled.canonical)
    # Parentheses keep the words of one row apart from a predicate of the next.
    name = _find_names(hashes, _list_unit_names(" ) ( ".join(texts)), analyzer)
    unknown = hashes[[not each for each in name]]
    if len(unknown := unknown[unknown != TOP]):  # pairs
        rows = np.unique(row_of(compiled.term_off)[np.isin(compiled.term, unknown)])
        pairs: set[str] = set()
        for row in rows.tolist():
            pairs.update(list_pairs(sorted(_list_unit_names(texts[row]))))
        found = _find_names(hashes, pairs, analyzer)
        name = [each or pair for each, pair in zip(name, found, strict=True)]
    names = sorted(set(name))
    place = {word: i for i, word in enumerate(names)}
    return names, np.fromiter(map(place.__getitem__, name), np.int64, len(name))


def _find_names(hashes: U64, known: set[str], analyzer: Analyzer) -> list[str]:
    """Returns which of these units has each hash, TOP_TERM for none."""
    names = sorted(known - {"AND", "OR", "NOT", "(", ")", ""})
    at, held = find(hashes, hash_literals(analyzer, names))
    found = [TOP_TERM] * len(hashes)
    for i in np.flatnonzero(held).tolist():
        found[at[i]] = names[i]
    return found


def _list_unit_names(canonical: str) -> set[str]:
    """Returns the names of the units under which canonical expressions may be posted, among
    others."""
    if not _NEEDS_LEXER.search(canonical):  # which takes a tenth of the time
        return {*canonical.replace("(", " ").replace(")", " ").split()}
    found, predicates = set[str](), dict[str, Lexeme]()
    for lexeme in split_lexemes(canonical):
        if lexeme.kind is LexemeKind.PREDICATE:
            predicates[lexeme.text] = lexeme
        else:
            found.add(lexeme.text)
    for lexeme in predicates.values():
        found.update(map(unit_text, read_predicate_literals(lexeme)))
    return found


def find(ordered: Array, wanted: Array) -> tuple[I64, Array]:
    """Returns (the place of each wanted value among the ordered ones, whether it is there)."""
    at = np.minimum(np.searchsorted(ordered, wanted), max(len(ordered) - 1, 0))
    return at, ordered[at] == wanted if len(ordered) else np.zeros(len(wanted), np.bool_)
