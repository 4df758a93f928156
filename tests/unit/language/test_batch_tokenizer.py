"""The kernels of folding equal `tokenizer.split`, give way, and let other threads run."""

from __future__ import annotations

import threading
import unicodedata
from itertools import pairwise
from random import Random
from typing import Literal

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.errors import Cancelled
from ps2stream.foldings import FOLDINGS
from ps2stream.language import tokenizer
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.batch_tokenizer import SLICE_BYTES, find_overlong, split_column, split_text
from ps2stream.language.character_tables import SIZE
from ps2stream.language.expression import compile_column
from ps2stream.language.tokenizer import SplitText
from ps2stream.limits import FOLDED_TEXT_BYTES, TEXT_BYTES
from ps2stream.protocol.frame import column_to_strings, strings_to_column

FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")
EVERY = [chr(c) for c in range(SIZE) if not 0xD800 <= c < 0xE000]
CLASSES = [
    regex.findall(pattern, "".join(EVERY), regex.VERSION1)
    for pattern in (
        tokenizer.IGNORABLE, tokenizer.PICTOGRAPH, r"\p{RI}", r"\p{GCB=Extend}",
        r"\p{GCB=SpacingMark}", r"\p{GCB=Control}", r"\p{GCB=Prepend}",
        r"\p{InCB=Consonant}", r"\p{InCB=Linker}",
        tokenizer.SPACELESS, "[0-9#*]", "\u20e3", "\ufe0f", "\u200d", tokenizer.MARK,
        r"[\u1100-\u11ff]",
        r"[\uac00-\uad00]", r"\p{Emoji_Modifier}", "[A-Za-z ]",
        "[-_.,:;'+#\"/]", tokenizer.MID_LETTER, tokenizer.MID_NUMBER, tokenizer.NUMBER,
        tokenizer.HEBREW,
    )
]  # fmt: skip
DECOMPOSING = [c for c in EVERY if unicodedata.decomposition(c)]
PAIRS = [p.split() for p in map(unicodedata.decomposition, DECOMPOSING) if p[0] != "<"]
COMPOSING = [[chr(int(p[i], 16)) for p in PAIRS if len(p) == 2] for i in (0, 1)]
NEW_MARKS = [c for c in regex.findall(r"\P{ccc=0}", "".join(EVERY)) if not unicodedata.combining(c)]
POOLS = [
    *CLASSES, DECOMPOSING, *COMPOSING, EVERY, ["\ufdfa", "\u0344", "\uff9e"],
    [c for c in EVERY if c.casefold() != c],
]  # fmt: skip


def by_kernels(texts: list[str], foldings: frozenset[str] = frozenset()) -> list[SplitText]:
    """The words and side words of each text."""
    out = []
    rows = np.arange(len(texts))
    for part in split_column(*strings_to_column(texts), rows, foldings=foldings):
        tokens = column_to_strings(part.token_off, part.tokens)
        is_side = part.is_side.astype(bool).tolist()
        out += [SplitText(tokens[a:b], is_side[a:b]) for a, b in pairwise(part.row_off)]
    return out


def assert_equal_to_the_definition(
    texts: list[str], foldings: frozenset[str] = frozenset()
) -> None:
    for text, found in zip(texts, by_kernels(texts, foldings), strict=True):
        assert found == tokenizer.split(text, foldings), ascii(text)


def test_characters_alone_and_between_letters() -> None:
    """Some of all, more of those with a rule; all of them are taken by
    `python -m tests.unit.language.test_batch_tokenizer`."""
    some = {*EVERY[::101], *DECOMPOSING[::5], *(c for pool in CLASSES[:9] for c in pool[::5])}
    assert_equal_to_the_definition([f"{c} a{c}b{c} 1{c}2" for c in sorted(some)])


@pytest.mark.takes_turns
@pytest.mark.parametrize("folding", FOLDINGS)
def test_characters_that_are_folded_by_choice(folding: str) -> None:
    chosen = frozenset([folding])
    some = [*map(chr, tokenizer.optional_forms(chosen)), *EVERY[::101], *DECOMPOSING[::5]]
    texts = [f"{c} a{c}b{c} 1{c}2 e{c}\u0301" for c in some]
    assert_equal_to_the_definition(texts, chosen)
    for text, found in zip(texts, by_kernels(texts, chosen), strict=True):
        folded = tokenizer.fold(text, chosen)
        assert tokenizer.fold(folded, chosen) == folded
        assert not set(map(ord, folded)) & set(tokenizer.optional_forms(chosen))
        assert by_kernels([folded], chosen) == [found]


def random_texts(random: Random, count: int) -> list[str]:
    texts = []
    for i in range(count):
        pools = random.sample(POOLS, random.randint(1, 6))
        size = random.randint(1, 120 if i % 4 == 0 else 14)
        text = "".join(random.choice(random.choice(pools)) for _ in range(size))
        if i % 8 == 0:  # a long run, also of marks that only `regex` knows
            marks = [random.choice(CLASSES[14] + NEW_MARKS * 3) for _ in range(6)]
            run = "".join(random.choice(marks) for _ in range(random.randint(28, 90)))
            text += run + random.choice(COMPOSING[1]) + text
        if i % 5 == 0:
            text = unicodedata.normalize(random.choice(FORMS), text)
        texts.append(text)
    return texts


def test_random_texts() -> None:
    assert_equal_to_the_definition(random_texts(Random(3), 2_000))


def test_every_pair_and_sequences_that_normalization_knows() -> None:
    texts = [unicodedata.normalize(f, c) for c in DECOMPOSING[::9] for f in FORMS]
    texts += [a + x + b for a, b in zip(*COMPOSING, strict=True) for x in ("", "\u0316")]
    texts += [
        f"{a}{b}{c}" for a in "ᄀ가각ᄒ\u1113" for b in "ᅡᅵ\u1160\u1176" for c in "ᆨᇂ\u11a7\u11c3"
    ]
    assert_equal_to_the_definition(texts)


@pytest.mark.parametrize(
    "text",
    [
        "क\u094d🏽क x\u0d4d🏽ക",  # a cluster that looks back beyond its beginning
        "a🏽\u200d👩 👩🏽\u200d👩",
        "1\ufe0f\u20e3\u034f2\u20e3 3\u034f\ufe0f\u20e3 44\ufe0f5",
        "🇨🇭🇩\u200d\u0903🇪\u034f🇨",
        "\u0600👍\u0600 👍\u0903क",
        "a" + "\U0001e4ec\u0301\u0316" * 20 + "\U0010a0ff" + "\u0323\u0301" * 40,
        "é" * 200,
        "漢" * 50 + "\ufdfa" * 50,
        "\ufffe\uffff\U0010ffff\x00",
        "a\u0301.b a.\u0301b \u0301.b 1\u0301.2 _\u0301'a 1.2\u20e3 c#\u20e3 c++1\u20e3 c#\ufe0f",
        "a" * 127 + "'bc " + "a" * 126 + "'bc " + "a" * 126 + "·b " + "a" * 126 + "++ " + "a_" * 80,
        "ab" + "\u0301" * 62 + "'s a." + "é" * 64 + ".b",
    ],
)
def test_hostile_sequences(text: str) -> None:
    assert by_kernels([text]) == [tokenizer.split(text)]
    assert split_text(text) == tokenizer.split(text)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=40), st.text(max_size=8))
def test_damaged_utf8(data: bytes, text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")[1:] + data + "é👍".encode()[:-1] + b"a\xe0\x9f\x80"
    off = np.array([0, len(data)], np.int64)
    (found,) = split_column(off, np.frombuffer(data, np.uint8), np.zeros(1, np.int64))
    want = tokenizer.split(data.decode("utf-8", "replace"))
    assert column_to_strings(found.token_off, found.tokens) == want.tokens
    assert found.is_side.astype(bool).tolist() == want.is_side


def test_overlong_texts_are_found_by_their_exact_size() -> None:
    size = len(tokenizer.fold("\ufdfa").encode())
    fits = "\ufdfa" * (FOLDED_TEXT_BYTES // size)
    rest = FOLDED_TEXT_BYTES - size * len(fits)
    texts = [
        "a" * TEXT_BYTES,
        fits + "b" * rest,
        fits + "b" * (rest + 1),
        "é" * (TEXT_BYTES // 2),
        "\ufdfa" * (TEXT_BYTES // 3),
    ]
    assert all(len(t.encode()) <= TEXT_BYTES for t in texts)
    sizes = [len(tokenizer.fold(t).encode()) for t in texts]
    assert sizes[1] == FOLDED_TEXT_BYTES
    column = strings_to_column(texts)
    assert find_overlong(*column, TEXT_BYTES) == [(2, sizes[2]), (4, sizes[4])]
    with pytest.raises(Cancelled):
        find_overlong(*column, TEXT_BYTES, lambda: False)


def test_no_character_grows_more_than_the_bound_on_growth() -> None:
    for c in DECOMPOSING + CLASSES[18] + [c for c in EVERY if c.casefold() != c]:
        size = len(tokenizer.fold(c).encode())
        assert size <= (len(c.encode()) if c.isascii() else 16 * len(c.encode()))


@pytest.mark.parametrize("stemmer", [None, "english"])
def test_analysis_ends_between_slices_once_the_caller_has_left(stemmer: str | None) -> None:
    analyzer = Analyzer(Analysis(salt=7, stemmer=stemmer))
    column = strings_to_column(["\u0130漢 \ufdfa" * (SLICE_BYTES // 8)] * 5)
    answers = iter([True, True, True, False])
    with pytest.raises(Cancelled):
        analyzer.analyse(*column, lambda: next(answers))
    assert not list(answers)
    whole = analyzer.analyse(*column, lambda: True)
    assert all(np.array_equal(a, b) for a, b in zip(whole, analyzer.analyse(*column), strict=True))


def test_expressions_end_once_the_caller_has_left() -> None:
    analyzer = Analyzer(Analysis(salt=7))
    column = strings_to_column(["é OR (ü AND x)"] * 5)
    answers = iter([True, True, False])
    with pytest.raises(Cancelled):
        compile_column(*column, analyzer, Frequencies.of({}, analyzer), lambda: next(answers))


def test_other_threads_run_during_a_slice() -> None:
    """A slice that held the GIL would let this thread see its beginning or its end only."""
    analyzer = Analyzer(Analysis(salt=7))
    column = strings_to_column(["\ufdfa" * 200_000])
    analyzer.analyse(*strings_to_column(["\ufdfa"]))
    seen = 0
    begun, ended = threading.Event(), threading.Event()

    def is_wanted() -> bool:
        begun.set()
        return True

    def analyse() -> None:
        analyzer.analyse(*column, is_wanted)
        ended.set()

    thread = threading.Thread(target=analyse)
    thread.start()
    begun.wait()
    while not ended.wait(0.001):
        seen += 1
    thread.join()
    assert seen >= 10


if __name__ == "__main__":
    assert_equal_to_the_definition([f"{c} a{c}b{c}" for c in EVERY])
    for seed in range(50):
        assert_equal_to_the_definition(random_texts(Random(seed), 20_000))
