"""The lexemes of the query language: parentheses, operators, minuses, phrases, words and
predicates."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

_QUOTES: Final = '"“”„‟«»＂「」『』〝〞〟﹁﹂﹃﹄｢｣'
_DASHES: Final = "-‐‑–—―−⸺⸻﹣－"
# As keyboards for Chinese and Japanese write them.
_OPENING, _CLOSING = r"\(（", r"\)）"
_PARENS: Final = _OPENING + _CLOSING
# Marks of the direction of writing: keyboards put them beside words, where they are not seen.
_MARKS: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
# Hebrew writes an acronym with a quote before its last letter; that is no quotation.
_GERSHAYIM: Final = r'(?<=[\u0591-\u05f2])["”＂](?=[\u0591-\u05f2])'
_NAME: Final = r"(?:`[^`]*`|(?!(?:AND|OR|NOT)(?![\w.-]*\w))[^\W\d](?:[\w.-]*\w)?)"
# No quantifier is possessive: Python before 3.11.4 reads those wrongly. None needs to be, because
# what follows a repetition is nothing that the repetition could have taken.
_TEXT: Final = rf'(?:"(?:[^"\\]|\\.)*"|[{_QUOTES[1:]}][^{_QUOTES}]*[{_QUOTES[1:]}])'
# A comma is no part of a value, but behind one it is seen as a mistake: `a = 3,5`.
_HOUR: Final = r"\d{4}-\d\d-\d\d\s+\d\d?:"
_BARE: Final = rf"(?:{_HOUR}|(?!{_HOUR}))[^\s{_PARENS}{_QUOTES}]+"
_LISTED: Final = rf"(?:{_HOUR}|(?!{_HOUR}))[^\s{_PARENS},{_QUOTES}]+"
# What can only be a value, so that `storm in (texas)` stays words. What follows it and a comma is
# seen as a mistake if it is none: `a in (1, nan)`.
_SURE: Final = rf"(?:{_TEXT}|[+-]?\.?\d[^\s{_PARENS},{_QUOTES}]*|(?i:true|false))"
_SURE_LIST: Final = rf"\(\s*{_SURE}\s*(?:,(?:{_TEXT}|[^(){_QUOTES}])*)?\)"
_PREDICATE: Final = (
    rf"{_NAME}(?:\s*(?:[!<>]?=|[<>≠≤≥])\s*(?:{_TEXT}|{_BARE})?"
    rf"|\s+NOT\s+(?:IN\s*\(|EXISTS\b)"
    rf"|\s+(?:IN\s*\((?:{_TEXT}|[^(){_QUOTES}])*\)|in\s*{_SURE_LIST})"
    rf"|\s+(?:EXISTS\b|exists(?=\s*(?:[{_CLOSING}]|\Z)|\s+(?:AND|OR)\b)))"
)
PREDICATE_PARTS: Final = re.compile(
    rf"(?P<name>{_NAME})\s*(?P<op>[!<>]?=|[<>≠≤≥]|(?i:in|exists)\b|NOT\b)\s*(?P<rest>.*)\Z",
    re.DOTALL,
)
VALUE: Final = re.compile(rf"\s*(?P<value>(?P<text>{_TEXT})|{_BARE})\s*", re.DOTALL)
LISTED_VALUE: Final = re.compile(rf"\s*(?P<value>(?P<text>{_TEXT})|{_LISTED})\s*", re.DOTALL)
_OTHERS: Final = (
    rf"(?P<phrase>[{_QUOTES}](?:[^{_QUOTES}]|{_GERSHAYIM})*(?!{_GERSHAYIM})[{_QUOTES}])"
    rf"|(?P<quote>[{_QUOTES}])"
    rf"|(?P<minus>[{_DASHES}])"
    rf"|(?P<word>[^\s{_PARENS}{_QUOTES}{_MARKS}](?:[^\s{_PARENS}{_QUOTES}]|{_GERSHAYIM})*)"
)
_BRACKETS: Final = rf"(?P<open>[{_OPENING}])|(?P<close>[{_CLOSING}])"
_LEXEME: Final = re.compile(rf"{_BRACKETS}|(?P<predicate>{_PREDICATE})|{_OTHERS}", re.DOTALL)
# Without predicates, which are looked for at every word: all of them have one of these.
_PREDICATE_SIGN: Final = re.compile(r"[=<>≠≤≥]|IN|in|EXISTS|exists")
_PLAIN_LEXEME: Final = re.compile(rf"{_BRACKETS}|{_OTHERS}", re.DOTALL)
_TRAILING_MARKS: Final = re.compile(rf"[{_MARKS}]+\Z")


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
