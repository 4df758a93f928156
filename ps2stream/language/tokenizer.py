"""From a string to words: the definition that every other path must match.

Folding is NFKC(casefold(NFKC(text))) of a text in which symbols that stand for words have spaces
around them and the kinds of apostrophe are one; variation selectors and, outside emoji sequences,
other default-ignorable characters are dropped, and what is left is folded again, so that
analysing a word gives that word.

A word is then an emoji sequence, one character of a script written without spaces, or a run of
letters, marks, numbers and underscore in the bounds of UAX 29: a full stop or an apostrophe
between two letters joins them, and a comma, colon or the like two numbers. A word may have side
words, by which it is found besides: its pieces, and itself with the `++` or `#` behind it.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple
from unicodedata import combining, decomposition, normalize, unidata_version

import regex

from ps2stream.foldings import ACCENTS, ARABIC_MARKS, DIGITS
from ps2stream.limits import TOKEN_BYTES

VERSION: Final = 2
"""The version of these rules. Version 1 had no joined words, no side words and no sequence."""

# Copyright and registered signs are pictographs to Unicode, but separate as the trade mark does.
PICTOGRAPH = r"[[\p{Extended_Pictographic}\p{Emoji_Presentation}]--[\u00A9\u00AE]]"
SPACELESS = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
WORD = r"[\p{L}\p{M}\p{N}_]"
IGNORABLE = r"\p{Default_Ignorable_Code_Point}"
VARIATION = r"\p{Variation_Selector}"
HEBREW = r"\p{WB=Hebrew_Letter}"
LETTER = rf"[[[\p{{WB=ALetter}}{HEBREW}]&&{WORD}]--{SPACELESS}]"
NUMBER = rf"[[\p{{WB=Numeric}}&&\p{{N}}]--{SPACELESS}]"
# What joins between two letters, and between two numbers. Unlike in UAX 29 the colon joins
# numbers only: `10:30` is a word, `today:storm` is two.
MID_LETTER = r"[[\p{WB=MidLetter}\p{WB=MidNumLet}\p{WB=Single_Quote}]--[:]]"
MID_NUMBER = r"[\p{WB=MidNum}\p{WB=MidNumLet}\p{WB=Single_Quote}\u066B:]"

_KEYCAP_TAIL = r"\u20E3"
# \X would look back over a whole run of regional indicators at each of them.
_FLAG = r"\p{RI}{1,2}[\p{GCB=Extend}\p{GCB=ZWJ}\p{GCB=SpacingMark}]*+"
_EMOJI = rf"[0-9#*]{_KEYCAP_TAIL}|{_FLAG}|(?={PICTOGRAPH})\X"
_FLAGS = regex.VERSION1
_DIGIT = rf"(?:[{NUMBER}--[0-9]]|[0-9](?!{_KEYCAP_TAIL}))"
_MARK_RUN = rf"[\p{{M}}--{SPACELESS}]*+"
_RUN = (
    rf"(?:{HEBREW}{_MARK_RUN}(?:\"(?={HEBREW})|{MID_LETTER}(?={LETTER}))?"
    rf"|{LETTER}{_MARK_RUN}(?:{MID_LETTER}(?={LETTER}))?"
    rf"|{_DIGIT}{_MARK_RUN}(?:{MID_NUMBER}(?={_DIGIT}))?"
    rf"|[[[{WORD}--{SPACELESS}]--{LETTER}]--{NUMBER}])++"
)
_TOKEN = regex.compile(
    rf"((?:{_EMOJI})|[{SPACELESS}&&{WORD}])|({_RUN})((?:\+\+|\#)(?!{WORD}))?", _FLAGS
)
_LAST_JOINT = regex.compile(rf"(?:{MID_LETTER}|{MID_NUMBER}|\")+\Z", _FLAGS)
# A word is cut into pieces at underscores, at full stops, before a final `'s` and behind a single
# letter with an apostrophe.
_CUT = regex.compile(
    r"_|\.(?![0-9])|(?<=(?:^|[_.'])[^_.'])'(?![0-9])|'(?=s\Z)",
    _FLAGS,
)
_PIECE = 2  # characters of a piece, at least
# What decomposes into marks alone, though three vowels and two sound marks are none.
MARK = r"[\P{ccc=0}\u0F73\u0F75\u0F81\uFF9E\uFF9F]"
_MARKS = regex.compile(rf"{MARK}{{32,}}", _FLAGS)
_ANY_IGNORABLE = regex.compile(IGNORABLE, _FLAGS)
_VARIATION = regex.compile(VARIATION, _FLAGS)
_EMOJI_OR_IGNORABLE = regex.compile(rf"({_EMOJI})|{IGNORABLE}+", _FLAGS)
_SYMBOL = regex.compile(r"[\p{S}\p{No}]", _FLAGS)
_WORD_OR_MARK = regex.compile(rf"({WORD})", _FLAGS)
_NO_MARK = regex.compile(r"[\p{L}\p{N}_]", _FLAGS)
_LETTER = regex.compile(LETTER, _FLAGS)

# Typographic quotes, the acute accent, the letters for glottal stops, and the Hebrew marks.
_APOSTROPHES: Final = {ord(c): "'" for c in "\u2018\u2019\u00b4\u02bb\u02bc\u05f3"} | {0x5F4: '"'}
_STROKES: Final = dict(zip("øłđħŧıðæœþ", [*"oldhtid", "ae", "oe", "th"], strict=True))


class SplitText(NamedTuple):
    """The words of a text in order, with repeats, each followed by its side words; `is_side` says
    which these are."""

    tokens: list[str]
    is_side: list[bool]

    @property
    def sequence(self) -> list[str]:
        """The words without the side words."""
        return [t for t, side in zip(self.tokens, self.is_side, strict=True) if not side]


def unicode_version() -> str:
    """Returns the versions that the analysis depends on: `regex` (scripts, clusters) and Unicode
    (folding)."""
    return f"regex {regex.__version__}, folding {unidata_version}"


def special_form(c: str) -> str | None:
    """Returns what a character becomes before NFKC, or None where NFKC alone does it.

    Apostrophes become `'`. A symbol or number whose compatibility form has letters or digits is a
    word by itself (`kg`, fractions, circled numbers), except that superscripts and letters in
    circles belong to the word around them, and superscript symbols (trade mark, service mark)
    separate, as do spacing accents. A ligature of several words has spaces around it.
    """
    if ord(c) in _APOSTROPHES:
        return _APOSTROPHES[ord(c)]
    if not decomposition(c) or (plain := normalize("NFKC", c)) == c:
        return None
    form = plain.translate(_APOSTROPHES)
    usual = form if form != plain else None
    if not _WORD_OR_MARK.search(plain):
        return usual
    symbol = _SYMBOL.match(c) is not None
    if not _NO_MARK.search(plain) and (symbol or " " in plain):
        return " "
    raised = decomposition(c).startswith(("<super>", "<sub>"))
    if symbol and raised and regex.match(r"\p{S}", c):
        return " "
    own = symbol and not raised and not regex.match(r"\p{WB=ALetter}", c)
    return f" {form} " if own or " " in plain else usual


@cache
def special_forms() -> dict[int, str]:
    """Returns `special_form` of the characters that have one, by code point."""
    found = ((code, special_form(chr(code))) for code in range(0x40000))
    return {code: form for code, form in found if form is not None}


@cache
def optional_forms(foldings: frozenset[str]) -> dict[int, str]:
    """Returns what the chosen foldings make of folded characters, by code point.

    accents: Latin, Greek and Cyrillic letters lose the marks U+0300 to U+036F, and stroked
    letters and ligatures become plain ones. arabic-marks: vowel signs and tatweel go. digits:
    the decimal digits of all scripts become 0 to 9.
    """
    every = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x20000))))
    out: dict[int, str] = {}
    if ACCENTS in foldings:
        for c in regex.findall(r"[\p{Latin}\p{Greek}\p{Cyrillic}\u0300-\u036F]", every, _FLAGS):
            parts = (_STROKES.get(p, p) for p in normalize("NFD", c) if not 0x300 <= ord(p) < 0x370)
            if (bare := normalize("NFC", "".join(parts))) != normalize("NFC", c):
                out[ord(c)] = bare
    if ARABIC_MARKS in foldings:
        marks = r"[\u0610-\u061A\u0640\u064B-\u0652\u0656-\u065F\u0670\u06D6-\u06ED&&[\p{M}\u0640]]"
        out |= {ord(c): "" for c in regex.findall(marks, every, _FLAGS)}
    if DIGITS in foldings:
        out |= {ord(c): str(int(c)) for c in every if c.isdecimal() and not c.isascii()}
    return out


def fold(text: str, foldings: frozenset[str] = frozenset()) -> str:
    """Returns the folded text: idempotent, and free of ignorable characters outside emoji."""
    if text.isascii():
        return text.lower()
    forms, optional = special_forms(), optional_forms(foldings)
    while True:
        text = _MARKS.sub(_order_marks, text.translate(forms))
        text = normalize("NFKC", normalize("NFKC", text).casefold())
        if optional and (bare := text.translate(optional)) != text:
            text = bare
            continue
        if _ANY_IGNORABLE.search(text) is None:
            return text
        kept = _EMOJI_OR_IGNORABLE.sub(r"\1", _VARIATION.sub("", text))
        if kept == text:
            return text
        text = kept


def _order_marks(marks: regex.Match[str]) -> str:
    """Returns the marks in canonical order, which `normalize` would take quadratic time to find."""
    parts = "".join(normalize("NFKD", c) for c in marks[0])
    return "".join(sorted(parts, key=combining))


def cut_token(token: str) -> str:
    """Cuts a token to TOKEN_BYTES of UTF-8, never half a character, nor behind a character that
    joins."""
    if len(token) * 4 <= TOKEN_BYTES or len(data := token.encode()) <= TOKEN_BYTES:
        return token
    return _LAST_JOINT.sub("", data[:TOKEN_BYTES].decode("utf-8", "ignore"))


def split(text: str, foldings: frozenset[str] = frozenset()) -> SplitText:
    """Returns the words and side words of a text, each cut to TOKEN_BYTES."""
    if len(text) <= TOKEN_BYTES and text.isascii() and text.replace(" ", "").isalnum():
        words = text.lower().split()
        return SplitText(words, [False] * len(words))
    found = SplitText([], [])
    for alone, run, mark in _TOKEN.findall(fold(text, foldings)):
        word = cut_token(alone or run)
        side = _find_pieces(word) if run else []
        if mark and len((word + mark).encode()) <= TOKEN_BYTES:
            side.append(word + mark)
        found.tokens.append(word)
        found.tokens.extend(side)
        found.is_side.append(False)
        found.is_side.extend([True] * len(side))
    return found


def _find_pieces(word: str) -> list[str]:
    """Returns the pieces of a word that are words of their own, if it is cut at all."""
    pieces = _CUT.split(word)
    return [p for p in pieces if len(p) >= _PIECE] if len(pieces) > 1 else []


def marked_word(found: SplitText) -> str | None:
    """Returns the side word with `++` or `#` of a text that is one word with that behind it."""
    if found.is_side.count(False) == 1 and found.tokens[-1][-1] in "+#":
        return found.tokens[-1]
    return None
