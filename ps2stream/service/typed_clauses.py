"""The clauses of an expression in its subscriber's own words, tested on the terms of one object."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from ps2stream.v1 import explain_pb2

_LEXEME = re.compile(r"[()]|[^\s()]+")
Clause = explain_pb2.Clause


def typed_clause(
    source: str, tokens: Callable[[str], Sequence[str]], terms: AbstractSet[str]
) -> Clause:
    """Returns the clauses of an expression that was accepted, nested as it was written, each with
    its own text. A keyword that the analysis turns into other terms has these as its parts."""
    return _ClauseReader(source, tokens, terms).read_alternatives()


class _ClauseReader:
    """A recursive descent parser as in language/parser.py, which has refused what is malformed
    or too deep."""

    def __init__(
        self, source: str, tokens: Callable[[str], Sequence[str]], terms: AbstractSet[str]
    ) -> None:
        self.source = source
        self.lexemes = list(_LEXEME.finditer(source))
        self.at = 0
        self.tokens = tokens
        self.terms = terms

    def read_alternatives(self) -> Clause:
        """Reads what is between two parentheses, or the whole expression."""
        start, parts = self.at, [self.read_conjunction()]
        while self.peek() == "OR":
            self.at += 1
            parts.append(self.read_conjunction())
        return self.join("or", start, parts)

    def read_conjunction(self) -> Clause:
        start, parts = self.at, [self.read_factor()]
        while (lexeme := self.peek()) not in ("", ")", "OR"):
            self.at += lexeme == "AND"
            parts.append(self.read_factor())
        return self.join("and", start, parts)

    def read_factor(self) -> Clause:
        lexeme = self.peek()
        self.at += 1
        if lexeme != "(":
            return self.read_keyword(lexeme)
        inner = self.read_alternatives()
        self.at += 1
        return inner

    def read_keyword(self, word: str) -> Clause:
        found = [Clause(kind="term", text=t, holds=t in self.terms) for t in self.tokens(word)]
        if [part.text for part in found] == [word.casefold()]:
            return Clause(kind="term", text=word, holds=found[0].holds)
        return Clause(kind="and", text=word, holds=all(p.holds for p in found), parts=found)

    def join(self, kind: str, start: int, parts: list[Clause]) -> Clause:
        """Returns the clause from lexeme number `start` to the present one."""
        if len(parts) == 1:
            return parts[0]
        text = self.source[self.lexemes[start].start() : self.lexemes[self.at - 1].end()]
        holds = [part.holds for part in parts]
        return Clause(
            kind=kind, text=text, holds=all(holds) if kind == "and" else any(holds), parts=parts
        )

    def peek(self) -> str:
        return self.lexemes[self.at][0] if self.at < len(self.lexemes) else ""
