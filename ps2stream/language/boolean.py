"""Boolean expressions over literals: normal forms, posting sets, matching.

A literal is a keyword, a phrase or a prefix, and a term is a literal or its negation. NOT stands
at literals only (the parser pushes it down), so an expression is monotone in its terms, `x` and
`NOT x` taken as two. Its disjunctive normal form without the conjuncts that contain another one,
or that contradict themselves, is therefore unique; it is the canonical form as long as it has at
most 64 conjuncts (semantics.md 4). No function here takes time that is exponential in the
expression.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from ps2stream.language.literal_texts import TextWords
from ps2stream.limits import EXPRESSION_BYTES, EXPRESSION_CONJUNCTS

ANY_TEXT: Final = ""
"""Stands in a posting set for the term that every object has."""

_WORK = 1 << 14  # steps of an expansion before it counts as over EXPRESSION_CONJUNCTS
_EXISTS = "exists"
_NOT, _BEHIND_NOT = "NOT ", "NOT!"  # no text that begins with NOT lies between others


@dataclass(frozen=True, slots=True)
class Term:
    """A literal, as literal_texts.py writes it, or its negation."""

    literal: str
    negated: bool = False

    @property
    def text(self) -> str:
        """The canonical text: `flood`, `"rising water"`, `flood*`, `NOT flood`."""
        return _NOT + self.literal if self.negated else self.literal


@dataclass(frozen=True, slots=True)
class And:
    """The conjunction of two or more arguments, none of them an And; unique, sorted by text."""

    text: str  # two expressions are equal when their texts are
    args: tuple[Term | Or, ...] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Or:
    """The disjunction of two or more arguments, none of them an Or; unique, sorted by text."""

    text: str
    args: tuple[Term | And, ...] = field(compare=False, repr=False)


Expr = Term | And | Or


def all_of(args: Sequence[Expr]) -> Expr:
    """Returns the conjunction of one or more expressions."""
    if len(args) == 1:
        return args[0]
    flat: dict[str, Term | Or] = {}
    for arg in args:
        flat.update((x.text, x) for x in (arg.args if isinstance(arg, And) else (arg,)))
    unique = tuple(map(flat.__getitem__, _ordered_texts(flat)))
    if len(unique) == 1:
        return unique[0]
    parts = [f"({x.text})" if isinstance(x, Or) else x.text for x in unique]
    return And(" AND ".join(parts), unique)


def any_of(args: Sequence[Expr]) -> Expr:
    """Returns the disjunction of one or more expressions."""
    if len(args) == 1:
        return args[0]
    flat: dict[str, Term | And] = {}
    for arg in args:
        flat.update((x.text, x) for x in (arg.args if isinstance(arg, Or) else (arg,)))
    texts = _ordered_texts(flat)
    if len(texts) == 1:
        return flat[texts[0]]
    return Or(" OR ".join(texts), tuple(map(flat.__getitem__, texts)))


def _ordered_texts(texts: Iterable[str]) -> list[str]:
    """Returns the texts in order, what begins with NOT behind the rest: `coffee AND NOT
    starbucks`."""
    found = sorted(texts)
    first, end = bisect_left(found, _NOT), bisect_left(found, _BEHIND_NOT)
    return found if first == end else found[:first] + found[end:] + found[first:end]


# --- normal forms ---------------------------------------------------------


def terms_of(expr: Expr) -> frozenset[str]:
    """Returns every literal that occurs, negated or not."""
    found: set[str] = set()
    parts = [expr]
    for part in parts:  # the list grows as it is walked
        if isinstance(part, Term):
            found.add(part.literal)
        else:
            parts.extend(part.args)
    return frozenset(found)


@lru_cache(maxsize=16)  # as several steps in turn look at one expression
def conjuncts(expr: Expr) -> tuple[tuple[Term, ...], ...] | None:
    """Returns the disjunctive normal form without conjuncts that contain another one or contradict
    themselves: empty for an expression that can match nothing. None when it has over 64 conjuncts,
    or when finding that out takes too long."""
    args = (expr,) if isinstance(expr, Term) else expr.args
    terms_alone = tuple(x for x in args if isinstance(x, Term))
    if len(terms_alone) == len(args):  # as nearly all are: in the order of what follows
        if not isinstance(expr, And):
            fits = len(args) <= EXPRESSION_CONJUNCTS
            return tuple((x,) for x in terms_alone) if fits else None
        return (terms_alone,) if len(terms_of(expr)) == len(args) else ()
    literals = sorted(terms_of(expr))
    terms = [Term(x) for x in literals] + [Term(x, negated=True) for x in literals]
    found = _ConjunctExpansion({t: 1 << i for i, t in enumerate(terms)}).of(expr)
    if found is None:
        return None
    return tuple(tuple(t for i, t in enumerate(terms) if mask >> i & 1) for mask in sorted(found))


class _ConjunctExpansion:
    """Expands an expression into conjuncts, bit sets of terms, within a budget of steps."""

    def __init__(self, bit: dict[Term, int]) -> None:
        """Stores the bit of each term; the negated ones are the upper half, in the same order."""
        self.bit = bit
        self.literals = len(bit) // 2
        self.left = _WORK

    def of(self, expr: Expr) -> set[int] | None:
        """Returns the conjuncts of an expression, or None where the budget is spent."""
        if isinstance(expr, Term):
            return {self.bit[expr]}
        found: set[int] = set() if isinstance(expr, Or) else {0}
        for arg in expr.args:
            part = self.of(arg)
            if part is None:
                return None
            if isinstance(expr, Or):
                found |= part
                continue
            if not self.spend_steps(len(found) * len(part)):
                return None
            product = self.drop_absorbed({a | b for a in found for b in part})
            if product is None:
                return None
            found = product
        return self.drop_absorbed(found) if isinstance(expr, Or) else found

    def drop_absorbed(self, masks: set[int]) -> set[int] | None:
        """Returns the conjuncts that contain no other conjunct and do not contradict
        themselves."""
        kept: list[int] = []
        for mask in sorted(masks, key=int.bit_count):
            if mask & mask >> self.literals:
                continue
            if not self.spend_steps(len(kept)):
                return None
            for k in kept:
                if k & mask == k:
                    break
            else:
                kept.append(mask)
                if len(kept) > EXPRESSION_CONJUNCTS:
                    return None
        return set(kept)

    def spend_steps(self, steps: int) -> bool:
        """Returns whether the budget had this many steps left."""
        self.left -= steps
        return self.left >= 0


def is_flat(expr: Expr) -> bool:
    """Returns whether the expression is a literal, or consists of literals that are joined by one
    kind of operator; none of them is negated."""
    args = (expr,) if isinstance(expr, Term) else expr.args
    return all(isinstance(x, Term) and not x.negated for x in args)


def minimal_form(expr: Expr) -> Expr | None:
    """Returns the disjunctive normal form of `conjuncts` as an expression; None where there is
    none, or no conjunct in it."""
    found = conjuncts(expr)
    if found and _is_simple(expr):
        return expr
    return any_of([all_of(c) for c in found]) if found else None


def _is_simple(expr: Expr) -> bool:
    """Returns whether the expression is a term, or consists of terms that are joined by one kind
    of operator."""
    return isinstance(expr, Term) or all(isinstance(x, Term) for x in expr.args)


def canonical(expr: Expr) -> str:
    """Returns the canonical text, which parses into an expression with the same canonical text.

    It is the minimal disjunctive normal form when that has at most 64 conjuncts and 8 KiB, so
    that equivalent expressions have one text, NOT aside; otherwise the expression, sorted and
    unique.
    """
    return canonical_of(expr, minimal_form(expr))


def canonical_of(expr: Expr, least: Expr | None) -> str:
    """Returns the canonical text of an expression, from its minimal form."""
    if least is not None and fits_limit(text := limited_text(least)):
        return text
    return limited_text(expr)


def limited_text(expr: Expr) -> str:
    """Returns the text, with AND left out where it would be over the limit."""
    return expr.text if fits_limit(expr.text) else _leave_out_and(expr)


def _leave_out_and(expr: Expr) -> str:
    """Returns the text without AND, save before the word `exists`, which would else say that the
    word before it is an attribute."""
    if isinstance(expr, Term):
        return expr.text
    if isinstance(expr, Or):
        return " OR ".join(map(_leave_out_and, expr.args))
    parts = [f"({_leave_out_and(x)})" if isinstance(x, Or) else x.text for x in expr.args]
    return " ".join(f"AND {x}" if x == _EXISTS and i else x for i, x in enumerate(parts))


def fits_limit(text: str) -> bool:
    """Returns whether the text is within EXPRESSION_BYTES."""
    return len(text) * 4 <= EXPRESSION_BYTES or len(text.encode()) <= EXPRESSION_BYTES


def satisfies(expr: Expr, words: TextWords) -> bool:
    """Returns whether an object with the words of this text satisfies the expression."""
    if isinstance(expr, Term):
        return words.has(expr.literal) != expr.negated
    if isinstance(expr, And):
        return all(satisfies(x, words) for x in expr.args)
    return any(satisfies(x, words) for x in expr.args)


# --- posting --------------------------------------------------------------


def posting_set(expr: Expr, frequency: Callable[[str], int]) -> frozenset[str]:
    """Returns P(q): a set of literals of which every satisfying text has one (algorithms.md 1.2).

    It has the least frequent literal of each conjunct, of those that are not negated; above 64
    conjuncts the cheapest clause without a negated one, by the sum of frequencies. Ties go by the
    strings of the literals. Where a text without any of the literals may satisfy the expression,
    it is ANY_TEXT alone.
    """
    found = conjuncts(expr)
    rank = {t: frequency(t) for t in terms_of(expr)}
    if found is None:
        return _find_clause(expr, rank) or frozenset((ANY_TEXT,))
    posting = set()
    for conjunct in found:
        positive = [t.literal for t in conjunct if not t.negated]
        if not positive:
            return frozenset((ANY_TEXT,))
        posting.add(min(positive, key=lambda t: (rank[t], t)))
    return frozenset(posting)


def is_posted_as_any_text(expr: Expr) -> bool:
    """Returns whether P(q) is ANY_TEXT, which does not depend on frequencies."""
    return ANY_TEXT in posting_set(expr, lambda _: 0)


def _find_clause(expr: Expr, rank: dict[str, int]) -> frozenset[str] | None:
    """Returns the cheapest clause that the structure shows, unexpanded; None where each has a
    negated literal, which a text satisfies by what it lacks."""
    if isinstance(expr, Term):
        return None if expr.negated else frozenset((expr.literal,))
    clauses = [_find_clause(x, rank) for x in expr.args]
    usable = [c for c in clauses if c is not None]
    if isinstance(expr, Or):
        return frozenset().union(*usable) if len(usable) == len(clauses) else None
    return min(usable, key=lambda c: (sum(map(rank.__getitem__, c)), sorted(c)), default=None)
