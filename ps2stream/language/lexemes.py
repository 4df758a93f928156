"""The lexemes of the query language: parentheses, operators, minuses, phrases, words and
predicates."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

import regex

_QUOTES: Final = '"“”„‟«»＂「」『』〝〞〟﹁﹂﹃﹄｢｣'
_DASHES: Final = "-‐‑–—−﹣－"
# Marks of the direction of writing: keyboards put them beside words, where they are not seen.
_MARKS: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
# Hebrew writes an acronym with a quote before its last letter; that is no quotation.
_GERSHAYIM: Final = r'(?<=[\u0591-\u05f2])["”＂](?=[\u0591-\u05f2])'
# Blanks and letters as they are to str.isspace and str.isalnum.
_BLANK: Final = r"\s\x1c-\x1f"
_S: Final = f"[{_BLANK}]"
_WORD: Final = r"\p{L}\p{N}_"
_FIRST: Final = r"\p{L}\p{Nl}\p{No}_"
_END: Final = f"(?![{_WORD}])"
_NAME: Final = (
    rf"(?:`[^`]*`|(?!(?:AND|OR|NOT)(?![{_WORD}.-]*[{_WORD}]))[{_FIRST}](?:[{_WORD}.-]*[{_WORD}])?)"
)
_TEXT: Final = rf'(?:"(?:[^"\\]|\\.)*+"|[{_QUOTES[1:]}][^{_QUOTES}]*+[{_QUOTES[1:]}])'
# A comma is no part of a value, but behind one it is seen as a mistake: `a = 3,5`.
_BARE: Final = rf"(?:\d{{4}}-\d\d-\d\d{_S}+\d\d?:)?+[^{_BLANK}(){_QUOTES}]++"
_LISTED: Final = rf"(?:\d{{4}}-\d\d-\d\d{_S}+\d\d?:)?+[^{_BLANK}(),{_QUOTES}]++"
# What can only be a value, so that `storm in (texas)` stays words. What follows it and a comma is
# seen as a mistake if it is none: `a in (1, nan)`.
_SURE: Final = rf"(?:{_TEXT}|[+-]?\.?\d[^{_BLANK}(),{_QUOTES}]*+|(?i:true|false))"
_SURE_LIST: Final = rf"\({_S}*{_SURE}{_S}*(?:,(?:{_TEXT}|[^(){_QUOTES}])*+)?+\)"
_PREDICATE: Final = (
    rf"{_NAME}(?:{_S}*(?:[!<>]?=|[<>≠≤≥]){_S}*(?:{_TEXT}|{_BARE})?+"
    rf"|{_S}+NOT{_S}+(?:IN{_S}*\(|EXISTS{_END})"
    rf"|{_S}+(?:IN{_S}*\((?:{_TEXT}|[^(){_QUOTES}])*+\)|in{_S}*{_SURE_LIST})"
    rf"|{_S}+(?:EXISTS{_END}|exists(?={_S}*(?:\)|\Z)|{_S}+(?:AND|OR){_END})))"
)
PREDICATE_PARTS: Final = regex.compile(
    rf"(?P<name>{_NAME}){_S}*(?P<op>[!<>]?=|[<>≠≤≥]|(?i:in|exists){_END}|NOT{_END}){_S}*(?P<rest>.*)\Z",
    regex.DOTALL,
)
VALUE: Final = regex.compile(rf"{_S}*(?P<value>(?P<text>{_TEXT})|{_BARE}){_S}*", regex.DOTALL)
LISTED_VALUE: Final = regex.compile(
    rf"{_S}*(?P<value>(?P<text>{_TEXT})|{_LISTED}){_S}*", regex.DOTALL
)
_OTHERS: Final = (
    rf"(?P<phrase>[{_QUOTES}](?:[^{_QUOTES}]|{_GERSHAYIM})*+[{_QUOTES}])"
    rf"|(?P<quote>[{_QUOTES}])"
    rf"|(?P<minus>[{_DASHES}])"
    rf"|(?P<word>[^{_BLANK}(){_QUOTES}{_MARKS}](?:[^{_BLANK}(){_QUOTES}]|{_GERSHAYIM})*+)"
)
_BRACKETS: Final = r"(?P<open>\()|(?P<close>\))"
_LEXEME: Final = regex.compile(rf"{_BRACKETS}|(?P<predicate>{_PREDICATE})|{_OTHERS}", regex.DOTALL)
# Without predicates, which are looked for at every word: all of them have one of these.
_PREDICATE_SIGN: Final = regex.compile(r"[=<>≠≤≥]|IN|in|EXISTS|exists")
_PLAIN_LEXEME: Final = regex.compile(rf"{_BRACKETS}|{_OTHERS}", regex.DOTALL)
_TRAILING_MARKS: Final = regex.compile(rf"[{_MARKS}]+\Z")


class LexemeKind(Enum):
    """The kind of a lexeme. QUOTE is one that is not closed; END stands behind the last."""

    OPEN = "open"
    CLOSE = "close"
    PHRASE = "phrase"
    QUOTE = "quote"
    MINUS = "minus"
    WORD = "word"
    PREDICATE = "predicate"
    AND = "AND"
    OR = "OR"
    NOT = "NOT"
    END = "end"


_KINDS: Final = {kind.value: kind for kind in LexemeKind}
_OPERATORS: Final = {kind.value: kind for kind in (LexemeKind.AND, LexemeKind.OR, LexemeKind.NOT)}


class Lexeme(NamedTuple):
    """A piece of an expression; `start` counts characters from 0. A phrase has its quotes."""

    kind: LexemeKind
    text: str
    start: int

    @property
    def end(self) -> int:
        """The place behind the last character."""
        return self.start + len(self.text)


def split_lexemes(source: str) -> list[Lexeme]:
    """Returns the lexemes of an expression, END the last."""
    found = []
    lexeme = _LEXEME if _PREDICATE_SIGN.search(source) else _PLAIN_LEXEME
    for match in lexeme.finditer(source):
        text = match[0]
        kind = _KINDS[match.lastgroup or ""]
        if kind is LexemeKind.WORD:
            if not text.isascii():
                text = _TRAILING_MARKS.sub("", text)
            kind = _OPERATORS.get(text, kind)
        found.append(Lexeme(kind, text, match.start()))
    found.append(Lexeme(LexemeKind.END, "", len(source)))
    return found
