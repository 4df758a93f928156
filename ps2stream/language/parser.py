"""The parser of the query language.

    expr := or                 or := and (OR and)*          and := factor ((AND)? factor)*
    factor := NOT factor | -literal | -( or ) | literal | ( or )
    literal := keyword | "words" | prefix* | predicate
    predicate := name (= | != | < | <= | > | >=) value | name IN ( value, ... ) | name EXISTS

Operators are upper case only; a minus is any dash, and stands right before what it negates.
`~` and a leading apostrophe are reserved. The algebra of expressions is in boolean.py.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

from ps2stream.language.boolean import (
    Expr,
    Term,
    all_of,
    any_of,
    canonical_of,
    conjuncts,
    fits_limit,
    is_posted_as_any_text,
    limited_text,
    minimal_form,
    terms_of,
)
from ps2stream.language.lexemes import Lexeme, LexemeKind, split_lexemes
from ps2stream.language.literal_texts import phrase_text, prefix_text
from ps2stream.language.predicate_reader import PredicateError, read_predicates
from ps2stream.language.predicates import predicate_text
from ps2stream.limits import (
    EXPRESSION_BYTES,
    EXPRESSION_DEPTH,
    EXPRESSION_TERMS,
    PHRASE_WORDS,
)

_RESERVED: Final = re.compile(r"~|^['‘]")
# `*` begins the emoji of a keycap, which is a keyword like any other.
_STAR: Final = re.compile("[*\uff0a](?!\ufe0f?\u20e3)")
_OPERATORS: Final = re.compile(r"[=<>≠≤≥]|!=")
# `１＋１＝２` has no name before its sign, and stays words.
_WIDE_COMPARISON: Final = re.compile(r"[^\W\d][\w.-]*([！＜＞]?[＝＜＞])")
# What other languages write for NOT and parentheses would be dropped like any punctuation.
_OTHER_SIGN: Final = re.compile(r"^[!\[{](?=\w)|(?<=\w)[\]}]$")
_PREFIX_LETTERS: Final = 2
_SHOWN: Final = 40  # characters of a keyword that an error shows
_NO_FACTOR: Final = frozenset((LexemeKind.END, LexemeKind.CLOSE, LexemeKind.AND, LexemeKind.OR))
_NEGATED_BY_MINUS: Final = frozenset(
    (
        LexemeKind.OPEN,
        LexemeKind.PHRASE,
        LexemeKind.PREDICATE,
        LexemeKind.QUOTE,
        LexemeKind.WORD,
    )
)


class ExpressionError(ValueError):
    """A bad expression: `column`, from 1, counts characters; `message` says what is wrong."""

    def __init__(self, column: int, message: str) -> None:
        self.column = column
        self.message = message
        super().__init__(f"column {column}: {message}")


class KeywordAnalyzer(Protocol):
    """The analysis of keywords, as analyzer.Analyzer does it."""

    def keyword(self, text: str) -> list[str]:
        """Returns the words that a keyword means, in order, with repeats."""

    def plain_words(self, text: str) -> list[str]:
        """Returns the words of a text before stemming and stop words."""

    def is_spaceless(self, word: str) -> bool:
        """Returns whether a word is of a script that is written without spaces."""


def parse(source: str, analyzer: KeywordAnalyzer) -> Expr:
    """Returns the expression of `source`.

    Raises ExpressionError, also for more than 64 distinct literals, depth 8 or 8 KiB (as written
    or in canonical form), and for what can match nothing.
    """
    return parse_canonical(source, analyzer)[0]


def parse_canonical(source: str, analyzer: KeywordAnalyzer) -> tuple[Expr, str]:
    """Returns the expression of `source` and its canonical text; raises as `parse`."""
    if len(source) > EXPRESSION_BYTES or len(source.encode("utf-8", "replace")) > EXPRESSION_BYTES:
        raise ExpressionError(
            1, f"the expression is over {EXPRESSION_BYTES} bytes (limit expression_bytes)"
        )
    parser = _ExpressionParser(source, analyzer)
    tree = parser.parse()
    least = minimal_form(tree)
    if least is None and conjuncts(tree) == ():
        raise ExpressionError(
            1, "this can match nothing: it asks for something and excludes the same"
        )
    if len(parser.literals) == EXPRESSION_TERMS == len(terms_of(tree)):
        _check_any_text(tree)
    text = canonical_of(tree, least)
    if not fits_limit(text):
        raise ExpressionError(
            1, f"the canonical form is over {EXPRESSION_BYTES} bytes (limit expression_bytes)"
        )
    if least is not None and len(least.text) <= len(tree.text) and fits_limit(limited_text(least)):
        return least, text
    return tree, text


def _check_any_text(tree: Expr) -> None:
    """Raises ExpressionError if an expression of EXPRESSION_TERMS literals is posted as any text,
    for which it has one term more."""
    if is_posted_as_any_text(tree):
        raise ExpressionError(
            1,
            f"more than {EXPRESSION_TERMS - 1} distinct terms where a text without any of them "
            "may match (limit expression_terms)",
        )


def read_literal(lexeme: Lexeme, analyzer: KeywordAnalyzer) -> str:
    """Returns the literal of a WORD or a PHRASE, as literal_texts.py writes it.

    Raises ExpressionError.
    """
    text = lexeme.text
    if _OPERATORS.match(text):
        problem = "needs an attribute, perhaps in backquotes, before it and a value after it"
        raise _error_at(lexeme, f"{text[:_SHOWN]} {problem}")
    if reserved := _RESERVED.search(text):
        raise _error_at(lexeme, f"{reserved[0]} is reserved", reserved.start())
    if lexeme.kind is LexemeKind.WORD and (wide := _WIDE_COMPARISON.match(text)):
        problem = "is of full width; write it in ASCII, or put the words in quotes"
        raise _error_at(lexeme, f"{wide[1]} {problem}", wide.start(1))
    if lexeme.kind is LexemeKind.WORD and (other := _OTHER_SIGN.search(text)):
        meant = "a minus or NOT" if other[0] == "!" else "( and )"
        problem = f"has no meaning; write {meant}, or put the words in quotes"
        raise _error_at(lexeme, f"{other[0]} {problem}", other.start())
    star = _STAR.search(text)
    if lexeme.kind is LexemeKind.PHRASE:
        if star:
            raise _error_at(lexeme, "* has no meaning inside quotes", star.start())
        return _phrase_of(lexeme, text[1:-1], analyzer)
    if star is None:
        return _phrase_of(lexeme, text, analyzer)
    if star.end() < len(text):
        raise _error_at(lexeme, "* stands only at the end of a word", star.start())
    return _prefix_of(lexeme, text[:-1], analyzer)


def read_predicate_literals(lexeme: Lexeme) -> list[str]:
    """Returns the literals of a PREDICATE, of which one must hold. Raises ExpressionError."""
    try:
        return list(dict.fromkeys(map(predicate_text, read_predicates(lexeme.text))))
    except PredicateError as error:
        raise _error_at(lexeme, str(error), error.at) from None


def _phrase_of(lexeme: Lexeme, text: str, analyzer: KeywordAnalyzer) -> str:
    """Returns the literal of a keyword or of what stands between quotes."""
    words = analyzer.keyword(text)
    if not words:
        what = "phrase" if lexeme.kind is LexemeKind.PHRASE else "keyword"
        raise _error_at(lexeme, f"the {what} {text[:_SHOWN]!r} has nothing to search for")
    if len(words) > PHRASE_WORDS:
        raise _error_at(lexeme, f"a phrase of more than {PHRASE_WORDS} words (limit phrase_words)")
    return phrase_text(words)


def _prefix_of(lexeme: Lexeme, text: str, analyzer: KeywordAnalyzer) -> str:
    """Returns the literal of a prefix. Where words are written without spaces, a text that begins
    with several of them begins with all but the last and goes on after that: a phrase."""
    words = analyzer.plain_words(text)
    if len(words) > 1 and analyzer.is_spaceless(words[-1]):
        return _phrase_of(lexeme, text, analyzer)
    if len(words) > 1:
        raise _error_at(
            lexeme, f"* needs one word before it; {text[:_SHOWN]!r} is {len(words)} words"
        )
    if not words or len(words[0]) < _PREFIX_LETTERS:
        raise _error_at(lexeme, f"* needs at least {_PREFIX_LETTERS} letters before it")
    return prefix_text(words[0])


def _error_at(lexeme: Lexeme, message: str, offset: int = 0) -> ExpressionError:
    """Returns an error about a place in a lexeme."""
    return ExpressionError(lexeme.start + offset + 1, message)


class _ExpressionParser:
    """A parser by recursive descent, at most EXPRESSION_DEPTH deep. What is `negated` is pushed
    down to the literals by De Morgan's laws as it is read."""

    def __init__(self, source: str, analyzer: KeywordAnalyzer) -> None:
        self.lexemes = split_lexemes(source)
        self.at = 0
        self.depth = 0
        self.analyzer = analyzer
        self.known: dict[str, list[str]] = {}
        self.literals: set[str] = set()

    def parse(self) -> Expr:
        tree = self.parse_or(negated=False)
        if self.next.kind is not LexemeKind.END:
            raise _error_at(self.next, "unmatched )")
        return tree

    @property
    def next(self) -> Lexeme:
        return self.lexemes[self.at]

    def parse_or(self, negated: bool) -> Expr:
        args = [self.parse_and(negated)]
        while self.next.kind is LexemeKind.OR:
            self.at += 1
            args.append(self.parse_and(negated))
        return all_of(args) if negated else any_of(args)

    def parse_and(self, negated: bool) -> Expr:
        args = [self.parse_factor(negated)]
        while True:
            if self.next.kind is LexemeKind.AND:
                self.at += 1
            elif self.next.kind in _NO_FACTOR:
                return any_of(args) if negated else all_of(args)
            args.append(self.parse_factor(negated))

    def parse_factor(self, negated: bool) -> Expr:
        while self.next.kind is LexemeKind.NOT:
            negated = not negated
            self.at += 1
        if self.next.kind is LexemeKind.MINUS:
            negated = not negated
            self.skip_minus()
        lexeme = self.next
        if lexeme.kind in _NO_FACTOR:
            found = f", not {lexeme.text}" * bool(lexeme.text)
            raise _error_at(lexeme, f"expected a keyword{found}")
        if lexeme.kind is LexemeKind.QUOTE:
            raise _error_at(lexeme, "this quote is not closed")
        self.at += 1
        if lexeme.kind is LexemeKind.OPEN:
            return self.parse_group(lexeme, negated)
        terms = [Term(literal, negated) for literal in self.read_known(lexeme)]
        return all_of(terms) if negated else any_of(terms)

    def skip_minus(self) -> None:
        """Goes on to what a minus negates."""
        minus = self.next
        self.at += 1
        if self.next.start > minus.end or self.next.kind in (LexemeKind.END, LexemeKind.CLOSE):
            raise _error_at(minus, f"a {minus.text} stands right before the word that it excludes")
        if self.next.kind not in _NEGATED_BY_MINUS:
            raise _error_at(self.next, f"expected a keyword, not {self.next.text}")

    def parse_group(self, opening: Lexeme, negated: bool) -> Expr:
        """Parses what follows a parenthesis."""
        self.depth += 1
        if self.depth > EXPRESSION_DEPTH:
            raise _error_at(
                opening, f"nested more than {EXPRESSION_DEPTH} levels deep (limit expression_depth)"
            )
        tree = self.parse_or(negated)
        if self.next.kind is not LexemeKind.CLOSE:
            raise _error_at(opening, "this ( is not closed")
        self.at += 1
        self.depth -= 1
        return tree

    def read_known(self, lexeme: Lexeme) -> list[str]:
        """Returns the literals of a lexeme, which is read once, of which one must hold: more than
        one of a list of values."""
        literals = self.known.get(lexeme.text)
        if literals is None:
            if lexeme.kind is LexemeKind.PREDICATE:
                literals = read_predicate_literals(lexeme)
            else:
                literals = [read_literal(lexeme, self.analyzer)]
            self.known[lexeme.text] = literals
            self.literals.update(literals)
            if len(self.literals) > EXPRESSION_TERMS:
                raise _error_at(
                    lexeme, f"more than {EXPRESSION_TERMS} distinct terms (limit expression_terms)"
                )
        return literals
