"""The choice of the terms that a query is posted under, by the statistics of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Final

from ps2stream.language.analyzer import Frequencies
from ps2stream.language.boolean import ANY_TEXT, Expr, conjuncts, posting_set, terms_of
from ps2stream.language.literal_texts import is_phrase, is_prefix, phrase_words, prefix_of
from ps2stream.language.pairs import pair_text
from ps2stream.language.predicates import (
    COUNTED_LETTERS,
    EQUAL,
    EXISTS,
    Predicate,
    is_predicate,
    predicate_of,
    predicate_text,
)
from ps2stream.limits import EXPRESSION_TERMS

COMMON_SHARE: Final = 1 / 128
"""A conjunction of a query is posted under a pair of equalities only if the rarest of its literals
is in this share of the objects or more: a pair costs each object that may have it a look-up."""
GAIN: Final = 8
"""And only if so many times fewer objects can be expected to have the pair."""
_PAIRED: Final = 8  # rarest equalities of a conjunction, of which pairs are made


def choose_posting(expr: Expr, frequencies: Frequencies) -> frozenset[str]:
    """Returns P(q), as `posting_set` does, but with pairs (pairs.py) instead of literals where that
    pays."""
    frequency = partial(frequency_of, frequencies=frequencies)
    posting = posting_set(expr, frequency)
    if ANY_TEXT in posting or not frequencies.predicates:
        return posting
    literals, objects = terms_of(expr), frequencies.most
    found = conjuncts(expr) if sum(map(_is_equality, literals)) > 1 else None
    if found is None:
        return posting
    rank = {literal: frequency(literal) for literal in literals}
    kept, left, pairs = set[str](), set[str](), dict[str, int]()
    for conjunct in found:
        positive = [term.literal for term in conjunct if not term.negated]
        best = min(positive, key=lambda literal: (rank[literal], literal))
        product, pair = _find_pair(positive, rank)
        pays = rank[best] >= objects * COMMON_SHARE and product * GAIN <= rank[best] * objects
        if pair and pays:
            left.add(best)
            pairs[pair] = product
        else:
            kept.add(best)
    # Several pairs may take the place of one literal.
    pays = sum(pairs.values()) * GAIN <= sum(rank[x] for x in left - kept) * objects
    has_room = len(literals) + len(pairs) <= EXPRESSION_TERMS
    return frozenset((*kept, *pairs)) if pays and has_room else posting


def _find_pair(positive: Sequence[str], rank: Mapping[str, int]) -> tuple[int, str]:
    """Returns the rarest pair of equalities among literals, and the product of how many objects
    have either alone; an empty text if there is none."""
    equal = sorted((rank[x], x) for x in positive if _is_equality(x) and rank[x] < _COMMON)
    return min(
        (
            (many * more, pair_text(a, b))
            for (many, a), (more, b) in combinations(equal[:_PAIRED], 2)
            if predicate_of(a).name != predicate_of(b).name
        ),
        default=(0, ""),
    )


def list_units(expr: Expr) -> list[str]:
    """Returns the texts of the literals and pairs that an expression may be posted under."""
    literals = sorted(terms_of(expr))
    return literals + list_pairs(literals)


def list_pairs(literals: Sequence[str]) -> list[str]:
    """Returns the pairs of the equalities among these literals."""
    return [
        pair_text(a, b)
        for a, b in combinations(filter(_is_equality, literals), 2)
        if predicate_of(a).name != predicate_of(b).name
    ]


def _is_equality(literal: str) -> bool:
    return is_predicate(literal) and predicate_of(literal).op == EQUAL


def frequency_of(literal: str, frequencies: Frequencies) -> int:
    """Returns the most objects of the sample that can have a literal.

    A text that has a phrase has its words, so the phrase counts as its rarest word. It is then
    never thought dearer than any of these, and as ties go by text it is posted rather than that
    word, which more objects have. A text has a prefix by any word that begins with it, so these
    counts add up: never too few, or a short prefix of many rare words would look cheap. (The
    sample has stems, and prefixes find words: with a stemmer a prefix longer than the stem counts
    too low.) What the sample does not know is rare, as a word is. Of attributes see
    `_frequency_of_predicate`.
    """
    if is_predicate(literal):
        return _frequency_of_predicate(literal, frequencies.predicates)
    if is_phrase(literal):
        return min(map(frequencies.get, phrase_words(literal)))
    if is_prefix(literal):
        return frequencies.count_prefix(prefix_of(literal))
    return frequencies.get(literal)


def _frequency_of_predicate(literal: str, counts: Mapping[str, int]) -> int:
    """Returns the objects of the sample that have the term of a predicate: for a comparison, the
    attribute. Of an attribute that the sample has, a value that it has not is rare. What it does
    not know, many objects may share: an equality counts as more common than any word, and that an
    attribute is there at all, as more common still."""
    name, op, _ = predicate_of(literal)
    present = counts.get(predicate_text(Predicate(name, EXISTS)))
    if op != EQUAL:
        return _MORE_COMMON if present is None else present
    is_known = present is not None and len(literal) <= COUNTED_LETTERS
    return counts.get(literal, 0 if is_known else _COMMON)


_COMMON, _MORE_COMMON = 1 << 40, 1 << 50  # more objects than any sample has
