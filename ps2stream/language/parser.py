"""The parser of the query language.

    expr := or        or := and (OR and)*        and := factor ((AND)? factor)*
    factor := keyword | ( or )

Operators are upper case only. Quotes, NOT, a leading minus, `*` and `~` are reserved. The
algebra of expressions is in boolean.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ps2stream.language.boolean import (
    Expr,
    Term,
    all_of,
    any_of,
    fits_limit,
    limited_text,
    minimal_form,
)
from ps2stream.limits import EXPRESSION_BYTES, EXPRESSION_DEPTH, EXPRESSION_TERMS

_LEXEME = re.compile(r"[()]|[^\s()]+")
# `*` begins the emoji of a keycap, which is a keyword like any other.
_RESERVED = re.compile(r"[\"“”„~]|\*(?!\uFE0F?\u20E3)|^[-'‘]")


class ExpressionError(ValueError):
    """A bad expression: `column`, from 1, counts characters; `message` says what is wrong."""

    def __init__(self, column: int, message: str) -> None:
        self.column = column
        self.message = message
        super().__init__(f"column {column}: {message}")


def parse(source: str, tokens: Callable[[str], Sequence[str]]) -> Expr:
    """Returns the expression of `source`, whose keywords are analysed by `tokens`.

    Raises ExpressionError, also for more than 64 distinct terms, depth 8 or 8 KiB (as written or
    in canonical form).
    """
    if len(source) > EXPRESSION_BYTES or len(source.encode("utf-8", "replace")) > EXPRESSION_BYTES:
        raise ExpressionError(
            1, f"the expression is over {EXPRESSION_BYTES} bytes (limit expression_bytes)"
        )
    tree = _ExpressionParser(source, tokens).parse()
    least = minimal_form(tree)
    if least is not None and len(least.text) <= len(tree.text) and fits_limit(limited_text(least)):
        return least
    if not fits_limit(limited_text(tree)):
        raise ExpressionError(
            1, f"the canonical form is over {EXPRESSION_BYTES} bytes (limit expression_bytes)"
        )
    return tree


class _ExpressionParser:
    """A parser by recursive descent, at most EXPRESSION_DEPTH deep."""

    def __init__(self, source: str, tokens: Callable[[str], Sequence[str]]) -> None:
        self.source = source
        self.lexemes = [*_LEXEME.findall(source), ""]
        self.at = 0
        self.depth = 0
        self.tokens = tokens
        self.terms: set[str] = set()
        self.known: dict[str, Expr] = {}

    def parse(self) -> Expr:
        tree = self.parse_or()
        if self.lexemes[self.at]:
            raise self.make_error(self.at, "unmatched )")
        return tree

    def make_error(self, at: int, message: str, offset: int = 0) -> ExpressionError:
        """Returns an error with `message` about a place in lexeme number `at`."""
        starts = [m.start() for m in _LEXEME.finditer(self.source)]
        return ExpressionError([*starts, len(self.source)][at] + offset + 1, message)

    def parse_or(self) -> Expr:
        args = [self.parse_and()]
        while self.lexemes[self.at] == "OR":
            self.at += 1
            args.append(self.parse_and())
        return any_of(args)

    def parse_and(self) -> Expr:
        args = [self.parse_factor()]
        while True:
            lexeme = self.lexemes[self.at]
            if lexeme == "AND":
                self.at += 1
            elif lexeme in ("", ")", "OR"):
                return all_of(args)
            args.append(self.parse_factor())

    def parse_factor(self) -> Expr:
        at = self.at
        lexeme = self.lexemes[at]
        if lexeme in ("", ")", "AND", "OR"):
            raise self.make_error(at, "expected a keyword" + (f", not {lexeme}" * bool(lexeme)))
        self.at += 1
        if lexeme != "(":
            return self.known.get(lexeme) or self.parse_keyword(lexeme, at)
        self.depth += 1
        if self.depth > EXPRESSION_DEPTH:
            raise self.make_error(
                at, f"nested more than {EXPRESSION_DEPTH} levels deep (limit expression_depth)"
            )
        tree = self.parse_or()
        if self.lexemes[self.at] != ")":
            raise self.make_error(at, "this ( is not closed")
        self.at += 1
        self.depth -= 1
        return tree

    def parse_keyword(self, word: str, at: int) -> Expr:
        if word == "NOT":
            raise self.make_error(at, "NOT is reserved")
        if reserved := _RESERVED.search(word):
            raise self.make_error(at, f"{reserved[0]} is reserved", reserved.start())
        found = self.tokens(word)
        if not found:
            raise self.make_error(at, f"the keyword {word[:40]!r} has nothing to search for")
        self.terms.update(found)
        if len(self.terms) > EXPRESSION_TERMS:
            raise self.make_error(
                at, f"more than {EXPRESSION_TERMS} distinct terms (limit expression_terms)"
            )
        self.known[word] = tree = all_of([Term(t) for t in found])
        return tree
