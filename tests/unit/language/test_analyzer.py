"""Text analysis: the kernels equal `tokens`, and `tokens` equals the semantics."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ps2stream.errors import FailedPrecondition, InvalidArgument
from ps2stream.foldings import FOLDINGS
from ps2stream.language import tokenizer
from ps2stream.language.analyzer import TOP, Analysis, Analyzer, Frequencies
from ps2stream.limits import TOKEN_BYTES
from ps2stream.protocol.frame import strings_to_column
from tests import naive

PLAIN = Analyzer(Analysis(salt=7))
FOLDING = Analyzer(Analysis(salt=7, fold=FOLDINGS))
ENGLISH = Analyzer(Analysis(salt=7, stemmer="english", stop_words="en"))

HOSTILE = [
    "",
    "\x00a\x7fb\x1f",
    "Don't #storm @Storm STORM under_score",
    "👨‍👩‍👧🇨🇭🇩🇪🇨 1️⃣abc12️⃣ *️⃣ ❤️❤ 👍🏽x🏽 ☃\u0301",
    "e\u0301 é e\u034f\u0301 \u0301 a\u00adb \u200d\ufe0f",
    "漢字カナｶﾞラーメン ไทย ที่ ລາວ ខ្មែរ မြန်မာ 한국어 각",
    "\ud800a\ud83d\udc4d",
    "ŒUVRE ß ŉ ﷺ ½ ™ ℹ️ … Σίσυφος İstanbul ǅ ᾳ\u0345\u0301",
    "x" * 127 + "é" + "y" * 9,
    "é" * 200 + " " + "👍" + "\u200d👍" * 60,
    "a" * 129 + " " + "a" * 128,
    " ".join(f"t{i}" for i in range(10_000)),
    "\u0600👍 \u0d4e👍 \u1160\u3164x\u115f",
    "a" + "\u0301\u0316" * 40 + "\u034f\u0301\u0316" * 40 + "b" + "\uff9e\u0f73\u0316\u0344" * 20,
    "🇨🇭" * 41 + "🇩" + "🇨\u0301🇭🇩" * 9 + "\u0600🇨🇭🇩 x🇨\u200d👍",
    "\u2139" * 40 + " " + "\ufb01" * 40,
    "don't don’t don´t l'été O'Brien’s Boston's rock'n'roll it's 'quoted' 5'10 ʻOhana мʼята",
    "3.14 10:30 1,000 1,2;3 ٣٫١٤ v1.2.3 2.x x.2 U.S. e.g. example.com kent.responding foo.été",
    "@NASA_JPL _a_ foo_bar_3.14 c_d's __ _ été_là c++ C# c#7 c++11 i++; a+++ x# y#️⃣ é++ é_b# a+ b+c",
    "iPhone™ Lego® © ℠ m² 1½ ½ ①② ⒈⒉ ⓗⓔⓛⓛⓞ 5㎏ 20℃ ㊗️ ㌔ ¨ ﷼ محمدﷺ ❤ ❤️ ❤️‍🔥 1⃣ 1️⃣ 👁️‍🗨️",
    'צה"ל צה״ל ג\'ורג\' a"b א"b today:storm 12:30:45 l·l a‧b x,y 1·2 1⁄2',
    "a" * 127 + ".b " + "a" * 126 + "'b " + "a" * 128 + ".b " + "a" * 127 + "# " + "a_" * 70 + "++",
    "a\u0301.b a.\u0301b 1\u0301.2 a\ufe0f.b a.\ufe0fb c#\ufe0f 👍.a 👍a.b 👍_x 👍\ufe0fa_b",
]
PARTS = [
    *"aB_9 #*-()é\u0301\ufe0f\u200d\u20e3👍🏽🇨☃©漢กำ\u0e33…’\u00ad\u034f한ᅡᆨ½ﬁ\ud800\U000e0067",
    *"'.,:;+\"אב·٣٫²™¨①ⓐ㎏",
    "foo",
    "++",
    "AND",
]
texts = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(PARTS), max_size=30).map("".join),
    st.text(st.characters(max_codepoint=0x2E7F, exclude_categories=()), max_size=40),
    st.text(st.characters(min_codepoint=0x1F000, max_codepoint=0x1FBFF), max_size=20),
)


def analysed(analyzer: Analyzer, rows: list[str]) -> list[list[int]]:
    off, term = analyzer.analyse(*strings_to_column(rows))
    assert off.dtype == np.int64
    assert term.dtype == np.uint64
    return [term[a:b].tolist() for a, b in pairwise(off)]


def by_tokens(analyzer: Analyzer, text: str) -> list[int]:
    return sorted({*analyzer.hash_terms(analyzer.tokens(text)).tolist(), int(TOP)})


def assert_words_of_the_semantics(text: str) -> None:
    sequence, side = naive.words(text)
    found = tokenizer.split(text)
    assert tuple(found.sequence) == sequence == tuple(PLAIN.sequence(text))
    is_side = zip(found.tokens, found.is_side, strict=True)
    assert {token for token, is_one in is_side if is_one} == side
    tokens = PLAIN.tokens(text)
    assert tokens == list(dict.fromkeys(found.tokens))
    assert set(tokens) == naive.tokens(text)


@pytest.mark.parametrize("analyzer", [PLAIN, FOLDING, ENGLISH], ids=["plain", "folding", "english"])
def test_hostile_rows_in_one_batch(analyzer: Analyzer) -> None:
    assert analysed(analyzer, HOSTILE) == [by_tokens(analyzer, t) for t in HOSTILE]
    assert analysed(analyzer, []) == []
    assert analysed(analyzer, [""]) == [[int(TOP)]]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_tokens_are_those_of_the_semantics(text: str) -> None:
    assert_words_of_the_semantics(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_tokens_analyse_into_themselves(text: str) -> None:
    others = (Analyzer(Analysis(7, s)) for s in ("french", "turkish"))
    for analyzer in (PLAIN, FOLDING, ENGLISH, *others):
        for token in analyzer.tokens(text)[:50]:
            assert analyzer.keyword(token) == [token]


@given(st.text("abYZ019 ", max_size=70))
@example("x" * TOKEN_BYTES)
@example("x" * (TOKEN_BYTES + 1))
def test_plain_words_are_split_like_others(text: str) -> None:
    """A full stop alone is no word, but keeps a text from the quick way."""
    assert tokenizer.split(text) == tokenizer.split(text + " .")


def test_marks_in_a_long_run_are_ordered_before_they_are_normalised() -> None:
    """`normalize` alone sorts them in quadratic time."""
    for marks in ("\u0301\u0316", "\uff9e\u0301\u0f73", "\u0344\u0316\u0315"):
        run = marks * 20
        (match,) = tokenizer._MARKS.finditer("e" + run + "b")
        ordered = tokenizer._order_marks(match)
        assert match[0] == run
        assert ordered == unicodedata.normalize("NFKD", run)
    assert not tokenizer._MARKS.search("e" + "\u0301\u0316" * 15)


@given(st.lists(texts, max_size=5))
@example(["a👍", "👍\u0301", "é", "x\ufe0f"])
@settings(max_examples=300, deadline=None)
def test_the_kernel_equals_the_tokens_and_the_semantics(rows: list[str]) -> None:
    assert analysed(PLAIN, rows) == [by_tokens(PLAIN, t) for t in rows]
    for t in rows:
        assert_words_of_the_semantics(t)
    assert analysed(FOLDING, rows) == [by_tokens(FOLDING, t) for t in rows]
    assert analysed(ENGLISH, rows) == [by_tokens(ENGLISH, t) for t in rows]


@given(texts)
@settings(max_examples=300, deadline=None)
def test_a_token_analyses_into_itself(text: str) -> None:
    for analyzer in (PLAIN, FOLDING, ENGLISH):
        for token in analyzer.tokens(text):
            assert analyzer.keyword(token) == [token]
        for word in analyzer.sequence(text):
            assert word in analyzer.tokens(text)


def test_every_character_takes_the_same_way_in_the_kernel() -> None:
    some = [*range(0xD800), *range(0xE000, 0x20000)][::7]
    between = (("a", "b"), ("1", "2"), ("c", "+"), ("א", "ב"))
    rows = [f"{a}{chr(c)}{b} {chr(c)}" for c in some for a, b in between[:1]]
    some = [*range(0x600), *range(0x2000, 0x2C00)]
    rows += [f"{a}{chr(c)}{b} {chr(c)}" for c in some for a, b in between]
    off, term = PLAIN.analyse(*strings_to_column(rows))
    for i, text in enumerate(rows):
        assert term[off[i] : off[i + 1]].tolist() == by_tokens(PLAIN, text), ascii(text)


@given(st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_damaged_utf8_separates(data: bytes) -> None:
    off = np.array([0, len(data)], np.int64)
    _, term = PLAIN.analyse(off, np.frombuffer(data, np.uint8))
    assert term.tolist() == by_tokens(PLAIN, data.decode("utf-8", "replace"))


def test_rows_of_a_slice_of_a_column() -> None:
    off, data = strings_to_column(["drop me", "keep é", "漢 b"])
    out_off, term = PLAIN.analyse(off[1:], data)
    assert term[: out_off[1]].tolist() == by_tokens(PLAIN, "keep é")
    assert term[out_off[1] :].tolist() == by_tokens(PLAIN, "漢 b")


def naive_hash(salt: int, token: str) -> int:
    """The twin of the hash kernel: multilinear over 32-bit words, then a bijection."""
    data = token.encode()[:128]
    raw = hashlib.shake_256(b"ps2stream terms %d" % salt).digest(8 * 68)
    keys = [int.from_bytes(raw[i : i + 8], "little") for i in range(0, len(raw), 8)]
    a, b = keys[66], keys[67]
    for i in range(0, len(data), 4):
        word = int.from_bytes(data[i : i + 4], "little")
        a += keys[i // 2] * word
        b += keys[i // 2 + 1] * word
    a += keys[64] * len(data)
    b += keys[65] * len(data)
    h = (a >> 32) % 2**32 << 32 | (b >> 32) % 2**32
    h = (h ^ h >> 32) * 0xD6E8FEB86659FD93 % 2**64
    h ^= h >> 32
    return h ^ 2 if h in (0, int(TOP), 2**64 - 1) else h


@pytest.mark.parametrize("reserved", [int(TOP), 0, 2**64 - 1])
def test_no_token_has_a_reserved_hash(reserved: int) -> None:
    before = (reserved ^ reserved >> 32) * pow(0xD6E8FEB86659FD93, -1, 2**64) % 2**64
    before ^= before >> 32
    chosen = Analyzer(Analysis(salt=7))
    chosen.keys = np.zeros_like(chosen.keys)
    chosen.keys[-2:] = before & 0xFFFFFFFF00000000, before << 32 & 0xFFFFFFFF00000000
    assert chosen.hash_terms(["storm"]).tolist() == [reserved ^ 2]
    assert analysed(chosen, ["storm é"]) == [sorted([reserved ^ 2, int(TOP)])]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=200)))
@settings(max_examples=100, deadline=None)
def test_the_hash_equals_its_twin(tokens: list[str]) -> None:
    assert PLAIN.hash_terms(tokens).tolist() == [naive_hash(7, t) for t in tokens]


def test_hashes_depend_on_the_salt_and_do_not_collide() -> None:
    tokens = [f"{a}{b}" for a in range(300) for b in ("", "a", "ab", "abc" * 40)]
    one = PLAIN.hash_terms(tokens)
    other = Analyzer(Analysis(salt=8)).hash_terms(tokens)
    assert len(np.unique(one)) == len(set(tokens))
    assert not np.intersect1d(one, other).size


def test_stemming_and_stop_words() -> None:
    assert ENGLISH.tokens("The rivers are flooding the FLOODED river") == ["river", "flood"]
    assert ENGLISH.tokens("the and of") == []


@pytest.mark.parametrize("word", ["unneeded", "exceeded", "randseed", "rivers"])
def test_a_stem_analyses_into_itself(word: str) -> None:
    """Snowball takes `unneeded` to `unneed`, that to `unne`, and that to `unn`."""
    [term] = ENGLISH.tokens(word)
    assert ENGLISH.tokens(term) == [term]


def test_what_a_keyword_means() -> None:
    assert PLAIN.keyword("C++") == PLAIN.keyword("(c++)") == ["c++"]
    assert PLAIN.keyword("F#") == ["f#"]
    assert PLAIN.keyword("c++17") == ["c", "17"]
    assert PLAIN.keyword("objective-c++") == ["objective", "c"]
    assert PLAIN.keyword("$5") == ["5"]
    assert PLAIN.keyword("東京") == ["東", "京"]
    assert PLAIN.keyword("@NASA_JPL") == ["nasa_jpl"]
    assert ENGLISH.keyword("rivers++") == ["rivers++"]
    assert ENGLISH.keyword("the") == ENGLISH.keyword("…") == []
    assert ENGLISH.sequence("The rivers, the River") == ["river", "river"]


def test_foldings_by_choice() -> None:
    text = "Éø Straße мой ٣٫٥ कि ५ كِتَابٌ بـيـت"
    by = {f: Analyzer(Analysis(7, fold=(f,))).sequence(text) for f in FOLDINGS}
    assert by["accents"][:3] == ["eo", "strasse", "мои"]
    assert by["digits"] == ["éø", "strasse", "мой", "3٫5", "कि", "5", "كِتَابٌ", "بـيـت"]
    assert by["arabic-marks"][-2:] == ["كتاب", "بيت"]
    assert PLAIN.sequence(text)[-2:] == ["كِتَابٌ", "بـيـت"]


def test_frequencies() -> None:
    counts = {f"t{i}": i for i in range(1000)} | {"é": 5}
    frequencies = Frequencies.of(counts, PLAIN)
    asked = ["t3", "é", "unseen", "t999"]
    assert frequencies.lookup(PLAIN.hash_terms(asked)).tolist() == [3, 5, 0, 999]
    assert [frequencies.get(t) for t in asked] == [3, 5, 0, 999]
    assert Frequencies.of({}, PLAIN).lookup(np.array([TOP])).tolist() == [0]


def test_the_settings_travel_and_have_a_fingerprint() -> None:
    one = Analysis(salt=1 << 63, stemmer="german", stop_words="de", fold=("accents", "digits"))
    assert Analysis.from_dict(json.loads(json.dumps(one.to_dict()))) == one
    assert one.regex_unicode == tokenizer.unicode_version()
    prints = {
        Analysis(salt=s, stemmer=m, stop_words=w, fold=f).fingerprint()
        for s in (1, 2)
        for m in (None, "german")
        for w in (None, "de")
        for f in ((), ("digits",))
    }
    assert len(prints) == 16
    assert all(len(p) == 64 for p in prints)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"salt": -1}, "analysis.salt"),
        ({"salt": 1 << 64}, "analysis.salt"),
        ({"salt": True}, "analysis.salt"),
        ({"stemmer": "klingon"}, "analysis.stemmer"),
        ({"stop_words": "english"}, "analysis.stop_words"),
        ({"regex_unicode": ""}, "analysis.regex_unicode"),
        ({"stemer": "english"}, "analysis.stemer"),
        ({"fold": ["vowels"]}, "analysis.fold"),
        ({"fold": ["digits", "accents"]}, "analysis.fold"),
        ({"fold": "digits"}, "analysis.fold"),
        ({"fold": None}, "analysis.fold"),
        ({"version": 0}, "analysis.version"),
        ({"version": "2"}, "analysis.version"),
    ],
)
def test_bad_settings_name_the_field(change: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        Analysis.from_dict(Analysis(salt=1).to_dict() | change)
    assert [v.field for v in error.value.violations] == [field]
    with pytest.raises(InvalidArgument, match=r"analysis\.salt: missing"):
        Analysis.from_dict({"regex_unicode": "1"})


def test_other_character_data_is_refused() -> None:
    old = Analysis(salt=7, regex_unicode="regex 2001.1, folding 3.0")
    with pytest.raises(FailedPrecondition, match=r"fixed as 'regex 2001.*is installed"):
        Analyzer(old)


@pytest.mark.parametrize("version", [1, tokenizer.VERSION + 1])
def test_words_of_another_version_are_refused(version: int) -> None:
    values = Analysis(salt=7).to_dict() | {"version": version}
    if version == 1:
        del values["version"]  # what the first version wrote
    with pytest.raises(FailedPrecondition, match=rf"words of version {version}, but .*list --json"):
        Analyzer(Analysis.from_dict(values))


def test_a_stem_that_is_a_stop_word_is_stopped_and_one_that_is_no_token_is_not_taken() -> None:
    assert ENGLISH.tokens("aed rivers") == ["river"]
    porter = Analyzer(Analysis(salt=7, stemmer="porter"))
    assert porter.tokens("s") == ["s"]  # its stem is empty
