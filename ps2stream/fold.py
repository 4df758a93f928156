"""From a string to tokens: the definition that every other path must equal.

Folding is NFKC(casefold(NFKC(text))); default-ignorable characters outside emoji
sequences are dropped, and what is left is folded again, so that analysing a token
gives that token. A token is then an emoji sequence, one character of a script
written without spaces, or a maximal run of letters, marks, numbers and underscore.
"""

from __future__ import annotations

from unicodedata import normalize, unidata_version

import regex

from ps2stream.limits import TOKEN_BYTES

PICTOGRAPH = r"[\p{Extended_Pictographic}\p{Emoji_Presentation}]"
SPACELESS = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
WORD = r"[\p{L}\p{M}\p{N}_]"
IGNORABLE = r"\p{Default_Ignorable_Code_Point}"

_KEYCAP_TAIL = r"\uFE0F?\u20E3"
_EMOJI = rf"[0-9#*]{_KEYCAP_TAIL}|(?={PICTOGRAPH})\X"
_FLAGS = regex.VERSION1
_TOKEN = regex.compile(
    rf"{_EMOJI}|[{SPACELESS}&&{WORD}]"
    rf"|(?:[{WORD}--{SPACELESS}--[0-9]]|[0-9](?!{_KEYCAP_TAIL}))++",
    _FLAGS,
)
_ANY_IGNORABLE = regex.compile(IGNORABLE, _FLAGS)
_EMOJI_OR_IGNORABLE = regex.compile(rf"({_EMOJI})|{IGNORABLE}+", _FLAGS)


def unicode_version() -> str:
    """What the analysis depends on: `regex` (scripts, clusters) and Unicode (folding)."""
    return f"regex {regex.__version__}, folding {unidata_version}"


def fold(text: str) -> str:
    """The folded text: idempotent, and free of ignorable characters outside emoji."""
    while True:
        text = normalize("NFKC", normalize("NFKC", text).casefold())
        if _ANY_IGNORABLE.search(text) is None:
            return text
        kept = _EMOJI_OR_IGNORABLE.sub(r"\1", text)
        if kept == text:
            return text
        text = kept


def cut(token: str) -> str:
    """At most TOKEN_BYTES of UTF-8, never half a character."""
    if len(token) * 4 <= TOKEN_BYTES:
        return token
    return token.encode()[:TOKEN_BYTES].decode("utf-8", "ignore")


def split(text: str) -> dict[str, None]:
    """The distinct tokens in order of appearance, as the keys of a dict."""
    return dict.fromkeys(map(cut, _TOKEN.findall(fold(text))))
