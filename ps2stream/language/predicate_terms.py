"""The terms of predicates, and comparisons in programs."""

from __future__ import annotations

import numpy as np

from ps2stream.language import attribute_kernels as kernels
from ps2stream.language.literals import LiteralKind
from ps2stream.language.pairs import split_pair
from ps2stream.language.predicates import COMPARISONS, EQUAL, EXISTS, Predicate, predicate_of
from ps2stream.protocol.frame import U8, U64, sealed
from ps2stream.protocol.programs import write_comparison


def kind_of(predicate: Predicate) -> LiteralKind:
    """Returns as what objects are searched for a predicate."""
    if predicate.op == EQUAL:
        return LiteralKind.EQUAL
    return LiteralKind.PRESENT if predicate.op == EXISTS else LiteralKind.COMPARED


def hash_predicate(keys: U64, predicate: Predicate) -> int:
    """Returns the term that an object has if it satisfies a predicate; of a comparison, the term of
    its attribute, which all comparisons of that share."""
    name, value = _bytes_of(predicate.name.encode()), predicate.value
    if predicate.op == EQUAL and value is not None:
        of_value = int(value.type), _bytes_of(value.key), 0, len(value.key)
        return int(kernels.equal_term(sealed(keys), name, 0, len(name), *of_value))
    kind = kernels.PRESENT if predicate.op == EXISTS else kernels.COMPARED
    return int(kernels.name_term(sealed(keys), name, 0, len(name), kind))


def put_comparison(predicate: Predicate, term: int, prog: list[int]) -> None:
    """Appends a comparison to a program (protocol/programs.py); term: the number of its term."""
    value = predicate.value
    assert value is not None
    operator = COMPARISONS.index(predicate.op)
    prog += write_comparison(term, operator, int(value.type), value.key)


def _bytes_of(data: bytes) -> U8:
    return np.frombuffer(data, np.uint8)


def mark_name(keys: U64, name: str) -> int:
    """Returns the byte that stands for an attribute's name in the marks of pairs."""
    data = _bytes_of(name.encode())
    return int(kernels.name_mark(sealed(keys), data, 0, len(data)))


def mark_names(keys: U64, pair: str) -> int:
    """Returns what an object is searched for a pair by: the marks of the two names, the lesser one
    first."""
    marks = [mark_name(keys, predicate_of(equality).name) for equality in split_pair(pair)]
    return min(marks) << 8 | max(marks)
