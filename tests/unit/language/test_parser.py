"""The query language: what is accepted, what it means, errors and canonical texts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ps2stream.language import lexemes
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.language.boolean import canonical, satisfies, terms_of
from ps2stream.language.parser import ExpressionError, parse
from tests import naive
from tests.support.expressions import LETTERS, LITERALS, LONG, VOCABULARY, source_of, sources

ANALYZER = Analyzer(Analysis(salt=7))
STEMMED = Analyzer(Analysis(salt=7, stemmer="english", stop_words="en"))
QUOTED = "or put the words in quotes"
WIDE = f"is of full width; write it in ASCII, {QUOTED}"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("flood AND (river OR creek)", "creek AND flood OR flood AND river"),
        ("flood AND（river OR creek）", "creek AND flood OR flood AND river"),
        ("coffee ―starbucks", "coffee AND NOT starbucks"),
        ("coffee ⸺（a OR floo＊）", "coffee AND NOT a AND NOT floo*"),
        ("b a", "a AND b"),
        ("Storm", "storm"),
        ("a b OR a", "a"),
        ("a (a OR b)", "a"),
        ("a OR b c OR a", "a OR b AND c"),
        ("and or not", "and AND not AND or"),
        ("((((((((a))))))))", "a"),
        # NOT and minuses
        ("NOT a", "NOT a"),
        ("-a", "NOT a"),
        ("coffee -starbucks", "coffee AND NOT starbucks"),
        ("b NOT c AND NOT a", "b AND NOT a AND NOT c"),
        ("a -b OR NOT c", "a AND NOT b OR NOT c"),
        ("NOT NOT a", "a"),
        ("NOT -a", "a"),
        ("NOT " * 1001 + "a", "NOT a"),
        ("NOT " * 1000 + "a", "a"),
        ("NOT (a OR b)", "NOT a AND NOT b"),
        ("NOT (a b)", "NOT a OR NOT b"),
        ("-(a -b)", "b OR NOT a"),
        ("NOT(a OR NOT(b OR NOT(c OR d)))", "b AND NOT a OR NOT a AND NOT c AND NOT d"),
        ("NOT a b", "b AND NOT a"),
        ("NOT (a b) OR c", "c OR NOT a OR NOT b"),
        ("a OR NOT a", "a OR NOT a"),
        ("a (b OR NOT a)", "a AND b"),
        ("a-", "a"),
        ("-1 2", "2 AND NOT 1"),
        # phrases
        ('"rising water"', '"rising water"'),
        ('"Rising,  WATER!"', '"rising water"'),
        ('"a"', "a"),
        ('a "a"', "a"),
        ('-"a b"', 'NOT "a b"'),
        ('"a b" OR a-b', '"a b"'),
        ('"a b"c', '"a b" AND c'),
        ('a"b c"', '"b c" AND a'),
        ('"a b""c d"', '"a b" AND "c d"'),
        ('"a b"-c', '"a b" AND NOT c'),
        ('"a AND (b -c NOT"', '"a and b c not"'),
        ('"it\'s\tfine"', '"it\'s fine"'),
        ("東京", '"東 京"'),
        ('"東京"', '"東 京"'),
        ('"東京 tower 🗼"', '"東 京 tower 🗼"'),
        ("rising-water", '"rising water"'),
        ('"سلام عليكم"', '"سلام عليكم"'),
        ('צה"ל', 'צה"ל'),
        ('"דובר צה"ל"', '"דובר צה"ל"'),
        ('"a b a b"', '"a b a b"'),
        (f'"{" ".join(LETTERS)}"', f'"{" ".join(LETTERS)}"'),
        # prefixes
        ("Flood*", "flood*"),
        ("-flood*", "NOT flood*"),
        ("flood* flood", "flood AND flood*"),
        ("#flood*", "flood*"),
        ("東京*", '"東 京"'),
        ("a東京*", '"a 東 京"'),
        ("*️⃣", "*\u20e3"),
        ("x" * 130 + "*", "x" * 128 + "*"),
        # marks of direction are not seen
        ("\u200f-a b\u200e", "b AND NOT a"),
        ("a\u200e NOT\u200f b", "a AND NOT b"),
        ("flood*\u200e \u2067", "flood*"),
    ],
)
def test_canonical_form(source: str, text: str) -> None:
    expr = parse(source, ANALYZER)
    assert canonical(expr) == text.replace("*\u20e3", next(iter(naive.tokens("*️⃣"))))
    assert canonical(parse(canonical(expr), ANALYZER)) == canonical(expr)


@pytest.mark.parametrize("dash", "-\u2010\u2011\u2013\u2014\u2212\ufe63\uff0d")
def test_every_dash_is_a_minus(dash: str) -> None:
    assert canonical(parse(f"a {dash}b", ANALYZER)) == "a AND NOT b"
    assert canonical(parse(f'{dash}"a b" {dash}(c {dash}d)', ANALYZER)) == (
        'd AND NOT "a b" OR NOT "a b" AND NOT c'
    )
    with pytest.raises(ExpressionError, match=r"column 3: a . stands right before"):
        parse(f"a {dash} b", ANALYZER)


@pytest.mark.parametrize(
    "quotes",
    [
        '""', "“”", "””", "„“", "„”", "‟”", "«»", "»«", "＂＂", "「」", "『』", "〝〟", "﹁﹂",
        "﹃﹄", "｢｣", '“"', '"»',
    ],
)  # fmt: skip
def test_every_kind_of_quotes(quotes: str) -> None:
    assert canonical(parse(f"x {quotes[0]}a, b{quotes[1]}", ANALYZER)) == '"a b" AND x'
    with pytest.raises(ExpressionError) as error:
        parse(f"x {quotes[0]}a b", ANALYZER)
    assert str(error.value) == "column 3: this quote is not closed"


MINUS = "a - stands right before the word that it excludes"
TWO_LETTERS = "* needs at least 2 letters before it"
NOTHING = "this can match nothing: it asks for something and excludes the same"


@pytest.mark.parametrize(
    ("source", "column", "message"),
    [
        ("", 1, "expected a keyword"),
        ("  ", 3, "expected a keyword"),
        ("a AND", 6, "expected a keyword"),
        ("OR a", 1, "expected a keyword, not OR"),
        ("a OR OR b", 6, "expected a keyword, not OR"),
        ("é AND )", 7, "expected a keyword, not )"),
        ("()", 2, "expected a keyword, not )"),
        ("(a", 1, "this ( is not closed"),
        ("a (b NOT (c)", 3, "this ( is not closed"),
        ("a) b", 2, "unmatched )"),
        ("a b~2", 4, "~ is reserved"),
        ("a mag＞＝3", 6, f"＞＝ {WIDE}"),
        ("河＝1", 2, f"＝ {WIDE}"),
        ("a !b", 3, f"! has no meaning; write a minus or NOT, {QUOTED}"),
        ("a AND [b OR c]", 7, f"[ has no meaning; write ( and ), {QUOTED}"),
        ("{a OR b}", 1, f"{{ has no meaning; write ( and ), {QUOTED}"),
        ("a OR b}", 7, f"}} has no meaning; write ( and ), {QUOTED}"),
        ('"a b"~2', 6, "~ is reserved"),
        ('"a ~b"', 4, "~ is reserved"),
        ("'a b'", 1, "' is reserved"),
        ("a !!", 3, "the keyword '!!' has nothing to search for"),
        ("(((((((((a)))))))))", 9, "nested more than 8 levels deep (limit expression_depth)"),
        ("NOT (" * 9 + "a", 45, "nested more than 8 levels deep (limit expression_depth)"),
        (
            " ".join(LETTERS) + " t64",
            247,
            "more than 64 distinct terms (limit expression_terms)",
        ),
        (
            " OR ".join(f"-{t}" for t in LETTERS),
            1,
            (
                "more than 63 distinct terms where a text without any of them may match "
                "(limit expression_terms)"
            ),
        ),
        ("a" * 8193, 1, "the expression is over 8192 bytes (limit expression_bytes)"),
        ("é" * 4097, 1, "the expression is over 8192 bytes (limit expression_bytes)"),
        # NOT and minuses
        ("NOT", 4, "expected a keyword"),
        ("a NOT", 6, "expected a keyword"),
        ("a NOT NOT ", 11, "expected a keyword"),
        ("a NOT OR b", 7, "expected a keyword, not OR"),
        ("(a NOT)", 7, "expected a keyword, not )"),
        ("-", 1, MINUS),
        ("a - b", 3, MINUS),
        ("(a -)", 4, MINUS),
        ("-\u200e a", 1, MINUS),
        ("--x", 2, "expected a keyword, not -"),
        ("-—x", 2, "expected a keyword, not —"),
        ("-AND a", 2, "expected a keyword, not AND"),
        ("-NOT a", 2, "expected a keyword, not NOT"),
        ("a -!", 4, "the keyword '!' has nothing to search for"),
        ("a NOT a", 1, NOTHING),
        ("a -a OR b NOT b", 1, NOTHING),
        ("a NOT (a OR b)", 1, NOTHING),
        ('"a b" -a-b', 1, NOTHING),
        # phrases
        ('"a b', 1, "this quote is not closed"),
        ('a "b c" "', 9, "this quote is not closed"),
        ('-"', 2, "this quote is not closed"),
        ('a"b', 2, "this quote is not closed"),
        ('""', 1, "the phrase '' has nothing to search for"),
        ('a "!?"', 3, "the phrase '!?' has nothing to search for"),
        ('"flood*"', 7, "* has no meaning inside quotes"),
        (
            f'a "{" ".join(LETTERS)} a"',
            3,
            "a phrase of more than 64 words (limit phrase_words)",
        ),
        ("-".join(LETTERS) + "-a", 1, "a phrase of more than 64 words (limit phrase_words)"),
        # prefixes
        ("*", 1, TWO_LETTERS),
        ("f*", 1, TWO_LETTERS),
        ("東*", 1, TWO_LETTERS),
        ("!*", 1, TWO_LETTERS),
        ("flood *", 7, TWO_LETTERS),
        ('"a b"*', 6, TWO_LETTERS),
        ("*ab", 1, "* stands only at the end of a word"),
        ("x a*b", 4, "* stands only at the end of a word"),
        ("fl*od", 3, "* stands only at the end of a word"),
        ("fl**", 3, "* stands only at the end of a word"),
        ("rising-wat*", 1, "* needs one word before it; 'rising-wat' is 2 words"),
    ],
)
def test_errors_point_at_the_column(source: str, column: int, message: str) -> None:
    with pytest.raises(ExpressionError) as error:
        parse(source, ANALYZER)
    assert (error.value.column, error.value.message) == (column, message)
    assert str(error.value) == f"column {column}: {message}"


def documented_rows() -> list[list[str]]:
    """The table of expressions in docs/queries.md: expression, a text it finds, one it does not."""
    page = Path("docs/queries.md").read_text(encoding="utf-8").partition("## Predicates")[0]
    return [re.findall(r"`([^`]+)`", line) for line in page.splitlines() if line[:3] == "| `"]


@pytest.mark.parametrize("row", documented_rows(), ids=lambda row: row[0])
def test_documented_examples_are_true(row: list[str]) -> None:
    expression, finds, misses = row
    expr = parse(expression, ANALYZER)
    assert satisfies(expr, ANALYZER.text_words(finds))
    assert not satisfies(expr, ANALYZER.text_words(misses))


def test_stop_words() -> None:
    for source in ("a1 OR the", 'a1 OR "the of"'):
        with pytest.raises(ExpressionError, match="column 7"):
            parse(source, STEMMED)
    assert canonical(parse('"The rivers of the FLOODED"', STEMMED)) == '"river flood"'
    assert canonical(parse("the* flooding*", STEMMED)) == "flooding* AND the*"


def test_prefixes_find_words_as_they_were_before_their_stems() -> None:
    expr = parse("floodin*", STEMMED)
    assert satisfies(expr, STEMMED.text_words("Flooding!"))
    assert not satisfies(expr, STEMMED.text_words("floods"))
    assert satisfies(parse("thei*", STEMMED), STEMMED.text_words("their"))
    phrase = parse('"flooded river"', STEMMED)
    assert satisfies(phrase, STEMMED.text_words("floods of the rivers"))
    assert not satisfies(phrase, STEMMED.text_words("rivers in floods"))


def refused(source: str) -> bool:
    try:
        parse(source, ANALYZER)
    except ExpressionError:
        return True
    return False


def refused_naively(source: str) -> bool:
    try:
        naive.parsed(source)
    except ValueError:
        return True
    return False


@given(sources)
@settings(max_examples=600, deadline=None)
def test_accepts_what_the_semantics_accept(source: str) -> None:
    assert refused(source) == refused_naively(source)


texts = st.lists(st.sampled_from(VOCABULARY), max_size=8).map(" ".join)


@given(
    st.one_of(source_of(st.sampled_from(LITERALS)), sources),
    st.lists(texts, min_size=1, max_size=8),
)
@settings(max_examples=800, deadline=None)
def test_satisfies_and_canonical_are_the_semantics(source: str, texts: list[str]) -> None:
    if refused(source):
        assert refused_naively(source)
        return
    expr = parse(source, ANALYZER)
    text = canonical(expr)
    again = parse(text, ANALYZER)
    assert canonical(again) == text
    for each in texts:
        truth = naive.satisfied(source, each)
        words = ANALYZER.text_words(each)
        assert satisfies(expr, words) == truth
        assert satisfies(again, words) == truth


@given(st.text(st.sampled_from("ab \"“-–NOT()*~'ORAND漢👍é\u200f־צ（）＊―"), max_size=30))
@settings(max_examples=600, deadline=None)
def test_any_text_is_parsed_or_refused_as_the_semantics_say(source: str) -> None:
    assert refused(source) == refused_naively(source)
    if not refused(source):
        expr = parse(source, ANALYZER)
        assert canonical(parse(canonical(expr), ANALYZER)) == canonical(expr)


@pytest.mark.parametrize("source", LONG, ids=range(len(LONG)))
def test_hostile_expressions_are_handled_or_refused(source: str) -> None:
    assert refused(source) == refused_naively(source)
    if not refused(source):
        expr = parse(source, ANALYZER)
        text = canonical(expr)
        assert len(text.encode()) <= 8192
        assert canonical(parse(text, ANALYZER)) == text


def test_a_canonical_form_over_the_limit() -> None:
    """AND is left out where that makes it fit; what does not fit even so is refused."""
    words = " ".join(f"{i:02}{'w' * 124}" for i in range(64))
    assert len(words) == 64 * 127 - 1
    assert canonical(parse(words, ANALYZER)) == words
    many = " OR ".join(f"ﷺ {a} {b}" for a in "abcdefghijklmnopq" for b in "0123456789rstuv")
    assert len(many.encode()) <= 8192
    with pytest.raises(ExpressionError, match="column 1: the canonical form is over 8192 bytes"):
        parse(many, ANALYZER)


def test_an_expression_with_every_term_but_one_may_match_any_text() -> None:
    assert len(terms_of(parse(" OR ".join(f"-{t}" for t in LETTERS[:63]), ANALYZER))) == 63
    assert len(terms_of(parse(" ".join(f"-{t}" for t in LETTERS[:63]) + " x", ANALYZER))) == 64


_PIECES = [
    "flood", "NOT", "AND", "OR", "(", ")", "IN", "in", "exists", "EXISTS", "=", "<", "\u2260", "3",
    '"a b"', '"', "-x", "mag", "`a b`", " ", " ", "usgs", "\u200e",
]  # fmt: skip


@given(st.lists(st.sampled_from(_PIECES), max_size=12).map("".join))
@example("mag exists")
@example("flood AND mag EXISTS")
@example("mag NOT EXISTS")
@example("mag NOT IN (3)")
@example("mag IN (3)")
@example("mag in (3)")
@example("mag = 3")
@example("mag<3")
@example("mag \u2265 3")
@settings(max_examples=500, deadline=None)
def test_what_has_no_sign_of_a_predicate_has_no_predicate(source: str) -> None:
    found = lexemes.split_lexemes(source)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lexemes, "_PREDICATE_SIGN", re.compile(""))  # looks for them everywhere
        assert found == lexemes.split_lexemes(source)
