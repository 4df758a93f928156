"""Expressions to try the query language with."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

WORDS = [
    *("a", "b", "c", "d", "A", "don't", "x-y", "é", "漢字", "👍", "1️⃣", "*️⃣", "FooBar", "a\x00b"),
    *("AND", "OR", "AND", "OR", "(", ")", "NOT", "-a", "'a", "a'", "a*", "a~", '"a', "!", "and"),
    *(
        "NOT",
        "-",
        "–",
        "−",
        '"',
        "“",
        "”",
        "«",
        "»",
        "「",
        "」",
        "*",
        "ab*",
        "a b*",
        "漢字*",
        "字*",
    ),
    *(
        '"a b"',
        '-"a b"',
        "-(",
        "a-b",
        "NOT-a",
        "#a",
        "@a_b",
        "_",
        "##a",
        'צה"ל',
        "\u200f",
        "b\u200e",
    ),
    "x" * 130,
]
"""Pieces of expressions, good and bad."""

sources = st.lists(
    st.tuples(st.sampled_from(WORDS), st.sampled_from([" ", "  ", "\t", "\x1f", ""])), max_size=12
).map(lambda pairs: "".join(word + gap for word, gap in pairs))

VOCABULARY = ["a", "b", "ab", "abc", "é", "東", "京", "👍", "x_y", "سلام"]
"""Words of texts."""

LITERALS = [
    *("a", "B", "ab", "é", "東", "東京", "👍", "a-b", "X_y", "سلام"),
    *('"a b"', "“B a”", "«ab»", "「東京」", '"a b a"', '"👍 سلام"', '"(a) AND b"', '"b京a"'),
    *("ab*", "AB*", "東京*", "x_*", "abc*", "سل*"),
]


def source_of(words: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Correct expressions, save that they may be nested too deeply or match nothing."""
    signs = st.sampled_from(["", "", "", "NOT ", "-", "—", "NOT NOT ", "NOT -"])
    signed = st.tuples(signs, words).map("".join)
    return st.recursive(
        signed,
        lambda part: st.tuples(
            signs, st.lists(part, min_size=1, max_size=4), st.sampled_from([" ", " AND ", " OR "])
        ).map(lambda p: p[0] + "(" + p[2].join(p[1]) + ")"),
        max_leaves=12,
    )


def positive_source_of(words: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """The same without NOT."""
    return st.recursive(
        words,
        lambda part: st.tuples(
            st.lists(part, min_size=1, max_size=4), st.sampled_from([" ", " AND ", " OR "])
        ).map(lambda p: "(" + p[1].join(p[0]) + ")"),
        max_leaves=12,
    )


LETTERS = [f"t{i}" for i in range(64)]
LONG = [
    " ".join(f"({LETTERS[2 * i]} OR {LETTERS[2 * i + 1]})" for i in range(32)),
    " OR ".join(f"({LETTERS[i % 64]} {LETTERS[i * 7 % 64]})" for i in range(500)),
    " ".join(f"({LETTERS[i % 64]} OR {LETTERS[(i * 3 + 1) % 64]})" for i in range(500)),
    " ".join("(" + " OR ".join(LETTERS[i * 16 : i * 16 + 16]) + ")" for i in range(4)),
    " OR ".join(
        f"({LETTERS[i % 26]} OR t{i % 38}) (t{i * 3 % 26} OR t{i * 5 % 38})" for i in range(190)
    ),
    "(t1)" * 2000,
    "(" * 8000,
    "OR " * 2700,
    " ".join("ﷺ" for _ in range(2000)),
    "t1 ("
    + " OR ".join(f"{'w' * 100}{i}" for i in range(60))
    + ") ("
    + " OR ".join(LETTERS[:3])
    + ")",
    "NOT " * 2001 + "t1",
    "NOT (" * 8 + "t1 OR t2 NOT t3" + ")" * 8,
    "-(t1 OR " * 8 + "t2" + ")" * 8,
    " OR ".join(f"-{t}" for t in LETTERS),
    " ".join(f"NOT {t}" for t in LETTERS[:63]),
    " ".join(f"(-{LETTERS[2 * i]} OR {LETTERS[2 * i + 1]})" for i in range(32)),
    "-" * 8000,
    '"' * 8001,
    '"' + "a " * 4000,
    " ".join(f'"{a} {b}"' for a, b in pairwise(LETTERS)),
    "*" * 8000,
    " OR ".join(f"t{i}*" for i in range(10, 74)),
]
"""Long and hostile ones, accepted or refused."""
