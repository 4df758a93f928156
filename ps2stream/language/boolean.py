"""Monotone boolean expressions over terms: normal forms, posting sets, matching.

An expression is monotone, so its minimal disjunctive normal form is unique; it is the
canonical form as long as it has at most 64 conjuncts (semantics.md 4).
No function here takes time that is exponential in the expression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache

from ps2stream.limits import EXPRESSION_BYTES, EXPRESSION_CONJUNCTS

_WORK = 1 << 14  # steps of an expansion before it counts as over EXPRESSION_CONJUNCTS


@dataclass(frozen=True, slots=True)
class Term:
    """An analysed token."""

    text: str


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
    one, *more = (flat[key] for key in sorted(flat))
    if not more:
        return one
    parts = (f"({x.text})" if isinstance(x, Or) else x.text for x in (one, *more))
    return And(" AND ".join(parts), (one, *more))


def any_of(args: Sequence[Expr]) -> Expr:
    """Returns the disjunction of one or more expressions."""
    if len(args) == 1:
        return args[0]
    flat: dict[str, Term | And] = {}
    for arg in args:
        flat.update((x.text, x) for x in (arg.args if isinstance(arg, Or) else (arg,)))
    one, *more = (flat[key] for key in sorted(flat))
    return Or(" OR ".join(x.text for x in (one, *more)), (one, *more)) if more else one


# --- normal forms ---------------------------------------------------------


def terms_of(expr: Expr) -> frozenset[str]:
    """Returns every term that occurs."""
    found: set[str] = set()
    parts = [expr]
    for part in parts:  # the list grows as it is walked
        if isinstance(part, Term):
            found.add(part.text)
        else:
            parts.extend(part.args)
    return frozenset(found)


@lru_cache(maxsize=16)  # as several steps in turn look at one expression
def conjuncts(expr: Expr) -> tuple[tuple[str, ...], ...] | None:
    """Returns the minimal disjunctive normal form, sorted, no conjunct containing another; None
    when it has over 64 conjuncts, or when finding that out takes too long."""
    terms = sorted(terms_of(expr))
    found = _ConjunctExpansion({t: 1 << i for i, t in enumerate(terms)}).of(expr)
    if found is None:
        return None
    return tuple(sorted(tuple(t for i, t in enumerate(terms) if mask >> i & 1) for mask in found))


class _ConjunctExpansion:
    """Expands an expression into conjuncts, bit sets of terms, within a budget of steps."""

    def __init__(self, bit: dict[str, int]) -> None:
        self.bit = bit
        self.left = _WORK

    def of(self, expr: Expr) -> set[int] | None:
        """Returns the conjuncts of an expression, or None where the budget is spent."""
        if isinstance(expr, Term):
            return {self.bit[expr.text]}
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
        """Returns the conjuncts that contain no other conjunct."""
        kept: list[int] = []
        for mask in sorted(masks, key=int.bit_count):
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


def minimal_form(expr: Expr) -> Expr | None:
    """Returns the minimal disjunctive normal form as an expression, None as for `conjuncts`."""
    if isinstance(expr, Term):
        return expr
    found = conjuncts(expr)
    if found is None:
        return None
    return any_of([all_of([Term(t) for t in c]) for c in found])


def canonical(expr: Expr) -> str:
    """Returns the canonical text, which parses into an expression with the same canonical text.

    It is the minimal disjunctive normal form when that has at most 64 conjuncts and 8 KiB, so
    that equivalent expressions have one text; otherwise the expression, sorted and unique.
    """
    least = minimal_form(expr)
    if least is not None and fits_limit(text := limited_text(least)):
        return text
    return limited_text(expr)


def limited_text(expr: Expr) -> str:
    """Returns the text, with AND left out where it would be over the limit."""
    return expr.text if fits_limit(expr.text) else expr.text.replace(" AND ", " ")


def fits_limit(text: str) -> bool:
    """Returns whether the text is within EXPRESSION_BYTES."""
    return len(text) * 4 <= EXPRESSION_BYTES or len(text.encode()) <= EXPRESSION_BYTES


def satisfies(expr: Expr, terms: AbstractSet[str]) -> bool:
    """Returns whether an object with these terms satisfies the expression."""
    if isinstance(expr, Term):
        return expr.text in terms
    if isinstance(expr, And):
        return all(satisfies(x, terms) for x in expr.args)
    return any(satisfies(x, terms) for x in expr.args)


# --- posting --------------------------------------------------------------


def posting_set(expr: Expr, frequency: Callable[[str], int]) -> frozenset[str]:
    """Returns P(q): a set of terms that every satisfying term set meets (algorithms.md 1.2).

    It has the least frequent term of each conjunct; above 64 conjuncts the cheapest clause by
    the sum of frequencies. Ties go by the strings of the terms.
    """
    found = conjuncts(expr)
    if found is not None:
        return frozenset(min(c, key=lambda t: (frequency(t), t)) for c in found)
    rank = {t: frequency(t) for t in terms_of(expr)}
    return _find_clause(expr, rank)


def _find_clause(expr: Expr, rank: dict[str, int]) -> frozenset[str]:
    """Returns the cheapest clause that the structure shows, unexpanded."""
    if isinstance(expr, Term):
        return frozenset((expr.text,))
    clauses = [_find_clause(x, rank) for x in expr.args]
    if isinstance(expr, Or):
        return frozenset().union(*clauses)
    return min(clauses, key=lambda c: (sum(map(rank.__getitem__, c)), sorted(c)))
