"""From a string to tokens: the definition that every other path must match.

Folding is NFKC(casefold(NFKC(text))); default-ignorable characters outside emoji sequences are
dropped, and what is left is folded again, so that analysing a token gives that token. A token is
then an emoji sequence, one character of a script written without spaces, or a maximal run of
letters, marks, numbers and underscore.
"""

from __future__ import annotations

from unicodedata import combining, normalize, unidata_version

import regex

from ps2stream.limits import TOKEN_BYTES

PICTOGRAPH = r"[\p{Extended_Pictographic}\p{Emoji_Presentation}]"
SPACELESS = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
WORD = r"[\p{L}\p{M}\p{N}_]"
IGNORABLE = r"\p{Default_Ignorable_Code_Point}"

_KEYCAP_TAIL = r"\uFE0F?\u20E3"
# \X would look back over a whole run of regional indicators at each of them.
_FLAG = r"\p{RI}{1,2}[\p{GCB=Extend}\p{GCB=ZWJ}\p{GCB=SpacingMark}]*+"
_EMOJI = rf"[0-9#*]{_KEYCAP_TAIL}|{_FLAG}|(?={PICTOGRAPH})\X"
_FLAGS = regex.VERSION1
_TOKEN = regex.compile(
    rf"{_EMOJI}|[{SPACELESS}&&{WORD}]"
    rf"|(?:[{WORD}--{SPACELESS}--[0-9]]|[0-9](?!{_KEYCAP_TAIL}))++",
    _FLAGS,
)
# What decomposes into marks alone, though three vowels and two sound marks are none.
MARK = r"[\P{ccc=0}\u0F73\u0F75\u0F81\uFF9E\uFF9F]"
_MARKS = regex.compile(rf"{MARK}{{32,}}", _FLAGS)
_ANY_IGNORABLE = regex.compile(IGNORABLE, _FLAGS)
_EMOJI_OR_IGNORABLE = regex.compile(rf"({_EMOJI})|{IGNORABLE}+", _FLAGS)


def unicode_version() -> str:
    """Returns the versions that the analysis depends on: `regex` (scripts, clusters) and Unicode
    (folding)."""
    return f"regex {regex.__version__}, folding {unidata_version}"


def fold(text: str) -> str:
    """Returns the folded text: idempotent, and free of ignorable characters outside emoji."""
    while True:
        text = normalize("NFKC", normalize("NFKC", _MARKS.sub(_order_marks, text)).casefold())
        if _ANY_IGNORABLE.search(text) is None:
            return text
        kept = _EMOJI_OR_IGNORABLE.sub(r"\1", text)
        if kept == text:
            return text
        text = kept


def _order_marks(marks: regex.Match[str]) -> str:
    """Returns the marks in canonical order, which `normalize` would take quadratic time to find."""
    parts = "".join(normalize("NFKD", c) for c in marks[0])
    return "".join(sorted(parts, key=combining))


def cut_token(token: str) -> str:
    """Cuts a token to TOKEN_BYTES of UTF-8, never half a character."""
    if len(token) * 4 <= TOKEN_BYTES:
        return token
    return token.encode()[:TOKEN_BYTES].decode("utf-8", "ignore")


def split(text: str) -> dict[str, None]:
    """Returns the distinct tokens in order of appearance, as the keys of a dict."""
    return dict.fromkeys(split_sequence(text))


def split_sequence(text: str) -> list[str]:
    """Returns the tokens in order of appearance, with repeats."""
    return list(map(cut_token, _TOKEN.findall(fold(text))))
