"""Literals as texts: how an expression writes a keyword, a phrase and a prefix, and what an object
offers them.

A keyword is its word, a phrase `"rising water"`, a prefix `flood*`; predicates are in
predicates.py. No word begins with a quote or ends in `*` or has a space, so the text of a literal
says what it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ps2stream.language.pairs import is_pair, split_pair
from ps2stream.language.predicates import (
    COMPARISONS,
    NO_ATTRIBUTES,
    Attributes,
    is_predicate,
    predicate_of,
)

_QUOTE, _STAR = '"', "*"


def phrase_text(words: Sequence[str]) -> str:
    """Returns the literal of one or more analysed words in a row: a phrase, or the one word."""
    return words[0] if len(words) == 1 else f"{_QUOTE}{' '.join(words)}{_QUOTE}"


def prefix_text(prefix: str) -> str:
    """Returns the literal of a folded prefix."""
    return prefix + _STAR


def is_phrase(literal: str) -> bool:
    """Returns whether the literal is a phrase."""
    return literal.startswith(_QUOTE)


def is_prefix(literal: str) -> bool:
    """Returns whether the literal is a prefix."""
    return literal.endswith(_STAR)


def phrase_words(literal: str) -> list[str]:
    """Returns the words of a phrase."""
    return literal[1:-1].split(" ")


def prefix_of(literal: str) -> str:
    """Returns the prefix without its star."""
    return literal[:-1]


@dataclass(frozen=True, slots=True)
class TextWords:
    """What an object offers to literals: its text and its attributes.

    sequence the analysed words in order, with repeats, in which phrases are looked for; side
    further words that keywords find; plain the words of both before stemming and stop words,
    which prefixes are compared with.
    """

    sequence: tuple[str, ...]
    side: frozenset[str]
    plain: frozenset[str]
    attributes: Attributes = field(default_factory=lambda: NO_ATTRIBUTES)
    terms: frozenset[str] = field(init=False, repr=False)
    line: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "terms", self.side.union(self.sequence))
        object.__setattr__(self, "line", f" {' '.join(self.sequence)} ")

    def has(self, literal: str) -> bool:
        """Returns whether the literal, or both of a pair, hold for the object."""
        if is_pair(literal):
            return all(map(self.has, split_pair(literal)))
        if is_predicate(literal):
            return predicate_of(literal).holds(self.attributes)
        if is_phrase(literal):
            return f" {literal[1:-1]} " in self.line  # as no word has a space
        if is_prefix(literal):
            prefix = prefix_of(literal)
            return any(word.startswith(prefix) for word in self.plain)
        return literal in self.terms

    def offers(self, literal: str) -> bool:
        """Returns whether the object has the term of a literal, under which a query is posted: that
        of a comparison as soon as it has the attribute."""
        if is_predicate(literal) and (predicate := predicate_of(literal)).op in COMPARISONS:
            return predicate.name in self.attributes
        return self.has(literal)
