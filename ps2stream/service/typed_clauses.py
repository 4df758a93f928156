"""The clauses of an expression in its subscriber's own words, tested on the text of one object."""

from __future__ import annotations

from collections.abc import Sequence

from ps2stream.language.lexemes import Lexeme, LexemeKind, split_lexemes
from ps2stream.language.literal_texts import TextWords, is_phrase, is_prefix, phrase_words
from ps2stream.language.parser import KeywordAnalyzer, read_literal, read_predicate_literals
from ps2stream.language.predicates import Attributes, Predicate, predicate_of
from ps2stream.language.values import ValueType, write_value
from ps2stream.v1 import explain_pb2

Clause = explain_pb2.Clause
_TYPES = {
    ValueType.NUMBER: "a number",
    ValueType.TEXT: "a text",
    ValueType.BOOLEAN: "true or false",
    ValueType.TIME: "a time",
}


def typed_clause(source: str, analyzer: KeywordAnalyzer, words: TextWords) -> Clause:
    """Returns the clauses of an expression that was accepted, nested as it was written, each with
    its own text. The words of a phrase are its parts, and so is the word that the analysis turns
    a keyword into."""
    return _ClauseReader(source, analyzer, words).read_alternatives()


def describe_comparison(predicates: Sequence[Predicate], attributes: Attributes) -> str:
    """Describes the comparison of an object's value with those of predicates on one attribute."""
    name = predicates[0].name
    mine = attributes.get(name)
    if mine is None:
        return f"the object has no attribute {name}"
    detail = f"{name} is {write_value(mine)}"
    types = {p.value.type for p in predicates if p.value is not None}
    if not types or mine.type in types:
        return detail
    others = " or ".join(sorted(_TYPES[t] for t in types))
    return f"{detail}, {_TYPES[mine.type]}, which is not compared with {others}"


class _ClauseReader:
    """A recursive descent parser as in language/parser.py, which has refused what is malformed
    or too deep."""

    def __init__(self, source: str, analyzer: KeywordAnalyzer, words: TextWords) -> None:
        self.source = source
        self.lexemes = split_lexemes(source)
        self.at = 0
        self.analyzer = analyzer
        self.words = words

    @property
    def next(self) -> Lexeme:
        return self.lexemes[self.at]

    def read_alternatives(self) -> Clause:
        """Reads what is between two parentheses, or the whole expression."""
        start, parts = self.at, [self.read_conjunction()]
        while self.next.kind is LexemeKind.OR:
            self.at += 1
            parts.append(self.read_conjunction())
        return self.join("or", start, parts)

    def read_conjunction(self) -> Clause:
        start, parts = self.at, [self.read_factor()]
        while self.next.kind not in (LexemeKind.END, LexemeKind.CLOSE, LexemeKind.OR):
            self.at += self.next.kind is LexemeKind.AND
            parts.append(self.read_factor())
        return self.join("and", start, parts)

    def read_factor(self) -> Clause:
        start = self.at
        while self.next.kind in (LexemeKind.NOT, LexemeKind.MINUS):
            self.at += 1
        is_negated = (self.at - start) % 2 == 1
        found = self.read_positive()
        if not is_negated:
            return found
        return Clause(kind="not", text=self.text_from(start), holds=not found.holds, parts=[found])

    def read_positive(self) -> Clause:
        lexeme = self.next
        self.at += 1
        if lexeme.kind is LexemeKind.PREDICATE:
            return self.read_predicate(lexeme)
        if lexeme.kind is not LexemeKind.OPEN:
            return self.read_literal(lexeme)
        inner = self.read_alternatives()
        self.at += 1
        return inner

    def read_literal(self, lexeme: Lexeme) -> Clause:
        literal = read_literal(lexeme, self.analyzer)
        found = Clause(kind="term", text=lexeme.text, holds=self.words.has(literal))
        if is_prefix(literal):
            found.kind = "prefix"
            return found
        if is_phrase(literal):
            found.kind = "phrase"
        words = phrase_words(literal) if is_phrase(literal) else [literal]
        if words != [lexeme.text.casefold()]:
            found.parts.extend(
                Clause(kind="term", text=word, holds=self.words.has(word)) for word in words
            )
        return found

    def read_predicate(self, lexeme: Lexeme) -> Clause:
        predicates = [predicate_of(literal) for literal in read_predicate_literals(lexeme)]
        attributes = self.words.attributes
        return Clause(
            kind="predicate",
            text=lexeme.text,
            holds=any(predicate.holds(attributes) for predicate in predicates),
            detail=describe_comparison(predicates, attributes),
        )

    def join(self, kind: str, start: int, parts: list[Clause]) -> Clause:
        """Returns the clause from lexeme number `start` to the present one."""
        if len(parts) == 1:
            return parts[0]
        holds = [part.holds for part in parts]
        return Clause(
            kind=kind,
            text=self.text_from(start),
            holds=all(holds) if kind == "and" else any(holds),
            parts=parts,
        )

    def text_from(self, start: int) -> str:
        """Returns what was typed from lexeme number `start` to the present one."""
        return self.source[self.lexemes[start].start : self.lexemes[self.at - 1].end]
