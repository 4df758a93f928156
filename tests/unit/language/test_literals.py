"""Watched literals: what queries note of them, and that texts are found to have exactly those."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from ps2stream.language.analyzer import TOP, Analysis, Analyzer
from ps2stream.language.area_kernels import AREA_WORDS, find_areas, find_inside
from ps2stream.language.literal_kernels import HEADS, LONG_SIZE, NAME_MARKS
from ps2stream.language.literals import (
    NO_LITERALS,
    LiteralKind,
    LiteralView,
    WatchedLiterals,
    size_prefix,
)
from ps2stream.language.search_kernels import add_to_rows
from ps2stream.limits import PHRASE_WORDS, TOKEN_BYTES
from ps2stream.protocol.frame import I16, I64, U64, strings_to_column
from ps2stream.protocol.rows import PROG_AND, PROG_NOT, PROG_NOTES, QueryRows
from ps2stream.space.region_rows import boxes_of
from ps2stream.space.regions import Circle, Rect, Region, World
from tests.support.routing import Row, query_rows

PLAIN = Analyzer(Analysis(salt=7))
ENGLISH = Analyzer(Analysis(salt=7, stemmer="english", stop_words="en"))
# As typed, folded, and as a term of ENGLISH (None: a stop word).
WORDS = [
    ("Flood", "flood", "flood"),
    ("flooding", "flooding", "flood"),
    ("the", "the", None),
    ("École", "école", "école"),
    ("ｆｌｏｗ", "flow", "flow"),
    ("東", "東", "東"),
    ("👍", "👍", "👍"),
    ("w" * 140, "w" * TOKEN_BYTES, "w" * TOKEN_BYTES),
]
PREFIXES = ["fl", "floo", "flood", "floodin", "éc", "éco", "wwww", "w" * TOKEN_BYTES, "th", "zz"]


WORLD = [-180.0, -90.0, 180.0, 90.0]


def watch(phrases: dict[int, int], prefixes: dict[int, int]) -> WatchedLiterals:
    """Literals by term: the words of a phrase, the size of a prefix."""
    kinds = [LiteralKind.PHRASE] * len(phrases) + [LiteralKind.PREFIX] * len(prefixes)
    return WatchedLiterals(
        np.array([*phrases, *prefixes], np.uint64),
        np.array(kinds, np.uint8),
        np.array([*phrases.values(), *prefixes.values()], np.uint16),
        np.full((len(kinds), AREA_WORDS), ~np.uint64(0)),
    )


def with_programs(rows: QueryRows, programs: list[list[int]]) -> QueryRows:
    off = np.zeros(len(programs) + 1, np.int64)
    off[1:] = np.cumsum([len(p) for p in programs])
    prog: I16 = np.array([v for p in programs for v in p], np.int16)
    return rows.replace(prog_off=off, prog=prog)


@pytest.mark.parametrize("analyzer", [PLAIN, ENGLISH], ids=["plain", "english"])
@pytest.mark.parametrize("seed", range(20))
def test_texts_have_exactly_the_watched_phrases_and_prefixes_that_hold(
    analyzer: Analyzer, seed: int
) -> None:
    rng = random.Random(seed)
    rows = [rng.choices(WORDS, k=rng.choice([0, 1, 2, 3, 8, 100])) for _ in range(12)]
    texts = [rng.choice([" ", ", ", "\n"]).join(word[0] for word in row) for row in rows]
    named: dict[int, tuple[str, ...]] = {}
    phrases: dict[int, int] = {}
    pool = [word[1] if analyzer is PLAIN else word[2] for word in WORDS]
    known = [word for word in pool if word is not None]
    for size in rng.choices([2, 3, 4, PHRASE_WORDS], k=12):
        phrase = tuple(rng.choices(known, k=size))
        one = analyzer.phrase_hash(phrase)
        named[one], phrases[one] = phrase, size
    for row in rows[:3]:  # some that do occur
        words = [w for w in (x[1] if analyzer is PLAIN else x[2] for x in row) if w is not None]
        for size in (2, 5, PHRASE_WORDS):
            if len(words) >= size:
                at = rng.randrange(len(words) - size + 1)
                one = analyzer.phrase_hash(words[at : at + size])
                named[one], phrases[one] = tuple(words[at : at + size]), size
    of_prefix = {analyzer.prefix_hash(p): p for p in rng.sample(PREFIXES, 6)}
    literals = watch(phrases, {term: size_prefix(p) for term, p in of_prefix.items()})
    off, term = analyzer.analyse(*strings_to_column(texts), literals=literals.view())
    plain_off, plain = analyzer.analyse(*strings_to_column(texts))
    for i, row in enumerate(rows):
        got = term[off[i] : off[i + 1]].tolist()
        assert got == sorted(set(got))
        sequence = [w for w in (x[1] if analyzer is PLAIN else x[2] for x in row) if w is not None]
        want = {
            t
            for t, phrase in named.items()
            if any(
                tuple(sequence[a : a + len(phrase)]) == phrase
                for a in range(len(sequence) - len(phrase) + 1)
            )
        }
        want |= {t for t, p in of_prefix.items() if any(w[1].startswith(p) for w in row)}
        assert set(got) == want | set(plain[plain_off[i] : plain_off[i + 1]].tolist())


def test_one_row_of_a_column_does_not_lend_its_words_to_the_next() -> None:
    term = PLAIN.phrase_hash(["rising", "water"])
    view = watch({term: 2}, {}).view()
    for texts in (["rising", "water"], ["東 rising", "water 東"], ["rising 東", "water"]):
        _, found = PLAIN.analyse(*strings_to_column(texts), literals=view)
        assert term not in found.tolist()


def test_nothing_is_searched_for_without_literals() -> None:
    texts = strings_to_column(["Rising water", "東京"])
    for given in (NO_LITERALS, watch({}, {}).view()):
        for a, b in zip(PLAIN.analyse(*texts), PLAIN.analyse(*texts, literals=given), strict=True):
            assert a.tolist() == b.tolist()


def test_a_literal_has_another_term_than_its_words() -> None:
    flood, water = PLAIN.hash_terms(["flood", "water"]).tolist()
    terms = [
        flood,
        water,
        int(TOP),
        PLAIN.phrase_hash(["flood", "water"]),
        PLAIN.phrase_hash(["water", "flood"]),
        PLAIN.phrase_hash(["flood", "flood"]),
        PLAIN.phrase_hash(["flood", "flood", "flood"]),
        PLAIN.prefix_hash("flood"),
        PLAIN.prefix_hash("water"),
    ]
    assert len(set(terms)) == len(terms)


def test_the_notes_of_queries_are_their_watched_literals() -> None:
    rows = query_rows(
        [Row((10, 20, 30), (0,)), Row((40,), (0,)), Row((50, 60), (1,)), Row((7,), (0,))]
    )
    rows = with_programs(
        rows,
        [
            [0, 1, PROG_NOT, PROG_AND, 1 | 1 << 8, 3, 2 | 2 << 8, 128, PROG_NOTES - 2],
            [],
            [0, 1, PROG_AND],
            [0 | 2 << 8, 5, PROG_NOTES - 1],
        ],
    )
    found = WatchedLiterals.of(rows)
    everywhere = 2**64 - 1
    assert [column.tolist() for column in found] == [
        [20, 30, 7], [1, 2, 2], [3, 128, 5], [[everywhere] * AREA_WORDS] * 3, [WORLD] * 2
    ]  # fmt: skip
    some = WatchedLiterals.of(rows.take(np.array([3, 1])))
    areas = [[everywhere] * AREA_WORDS]
    assert [column.tolist() for column in some] == [[7], [2], [5], areas, [WORLD]]


@pytest.mark.takes_turns
def test_the_boxes_of_queries_with_literals_are_those_that_points_are_found_in() -> None:
    rng = random.Random(4)
    regions: list[Region] = [REGIONS[2], REGIONS[5], Circle(179.99, 0, 50), REGIONS[7]]
    boxes = [tuple(map(tuple, boxes_of(region).tolist())) for region in regions]
    rows = query_rows([Row((7 + i,), (0,), each) for i, each in enumerate(boxes)])
    note = [0 | 2 << 8, 5, PROG_NOTES - 1]
    watched = WatchedLiterals.of(with_programs(rows, [note, [], note, note]))
    noted = [list(box) for each in (boxes[0], boxes[2], boxes[3]) for box in each]
    assert watched.box.tolist() == noted
    lon = np.array([rng.choice((175.0, -175.0, -180.0, rng.uniform(-180, 180))) for _ in range(99)])
    lat = np.array([rng.choice((40.0, 41.0, 20.0, rng.uniform(-50, 50))) for _ in range(99)])
    want = [
        i for i in range(99)
        if any(a <= lon[i] <= c and b <= lat[i] <= d for a, b, c, d in noted)
    ]  # fmt: skip
    assert find_inside(lon, lat, watched.box.ravel()).tolist() == want
    assert 0 < len(want) < 99


REGIONS: list[Region] = [
    Rect(-180, -10, -179, 10),
    Rect(170, -10, 180, 10),
    Rect(175, 40, -175, 41),
    Rect(10, 80, 20, 90),
    Rect(-5, -90, 5, -89.5),
    Rect(8.4, 47.3, 8.6, 47.5),
    Rect(8.4375, 47.8125, 8.4375, 47.8125),  # a corner of four tiles
    Rect(-20, -20, 20, 20),
    Rect(0, 0, 10.9, 1),
    Circle(8.54, 47.37, 20),
    Circle(179.99, 0, 50),
    Circle(30, 89.9, 100),
    Circle(0, -90, 10),
    World(),
]


@pytest.mark.parametrize("seed", range(10))
def test_an_object_has_the_literals_of_all_queries_whose_region_it_is_in(seed: int) -> None:
    rng = random.Random(seed)
    texts = ["rising water", "flooding", "東 rising water flooding", "nothing"]
    named = {PLAIN.phrase_hash(["rising", "water"]): (1, 2),
             PLAIN.prefix_hash("flood"): (2, size_prefix("flood"))}  # fmt: skip
    queries = [(rng.choice(REGIONS), rng.choice(sorted(named))) for _ in range(3)]
    rows = with_programs(
        query_rows(
            [Row((term,), (0,), tuple(map(tuple, boxes_of(r).tolist()))) for r, term in queries]
        ),
        [[0 | named[t][0] << 8, named[t][1] - (named[t][1] >> 15 << 16), PROG_NOTES - 1]
         for _, t in queries],
    )  # fmt: skip
    watched = WatchedLiterals.of(rows)
    sides = (-180.0, -179.5, 180.0, 0.0, 8.4, 8.4375, 8.6, 10.9)
    points = [
        (rng.choice((*sides, rng.uniform(-180, 180), rng.uniform(8.3, 8.7))),
         rng.choice((-90.0, 90.0, 0.0, 47.3, 47.8125, rng.uniform(-90, 90), rng.uniform(47, 48))))
        for _ in range(400)
    ]  # fmt: skip
    column = strings_to_column([rng.choice(texts) for _ in points])
    lon, lat = np.array(points).T
    off, term = PLAIN.analyse(*column, literals=watched.view(), area=find_areas(lon, lat))
    whole_off, whole = PLAIN.analyse(*column, literals=watched.everywhere().view())
    spared = 0
    for i, point in enumerate(points):
        got = set(term[off[i] : off[i + 1]].tolist())
        held = set(whole[whole_off[i] : whole_off[i + 1]].tolist())
        needed = {t for region, t in queries if region.contains(*point)} & held
        assert held - named.keys() | needed <= got <= held
        spared += len(held - got)
    is_wide = any(
        (box[2] - box[0] > 90) or box[3] - box[1] > 20 for r, _ in queries for box in boxes_of(r)
    )
    assert spared or is_wide


def test_rows_of_any_number_keep_their_terms_sorted() -> None:
    phrase = PLAIN.phrase_hash(["b", "a"])
    view = watch({phrase: 2}, {}).view()
    texts = ["b a " * 60, "東 b a", "", "b a"]
    off, term = PLAIN.analyse(*strings_to_column(texts), literals=view)
    for a, b in pairwise(off.tolist()):
        assert term[a:b].tolist() == sorted(set(term[a:b].tolist()))
    assert [phrase in term[a:b].tolist() for a, b in pairwise(off.tolist())] == [1, 1, 0, 1]


def test_points_are_found_in_boxes_of_any_size() -> None:
    """Small boxes, of which an area knows its own, and wide ones, with edges on those of tiles."""
    rng, tile = random.Random(5), 360 / 256
    for _ in range(30):
        boxes = []
        for _ in range(rng.randrange(40)):
            x, y = rng.uniform(-180, 180), rng.uniform(-90, 90)
            if rng.random() < 0.3:
                x, y = tile * (x // tile), tile * (y // tile)
            size = rng.choice((0.0, 0.1, tile, 4.0, 90.0))
            boxes.append([x, y, min(x + size, 180.0), min(y + size, 90.0)])
        if rng.random() < 0.1:
            boxes.append(WORLD)
        own = [
            (box[rng.choice((0, 2))], box[rng.choice((1, 3))]) for box in boxes for _ in range(3)
        ]
        own += [(rng.uniform(-180, 180), rng.uniform(-90, 90)) for _ in range(60)]
        lon, lat = np.array(own).T.copy()
        want = [
            i for i, (x, y) in enumerate(own)
            if any(a <= x <= c and b <= y <= d for a, b, c, d in boxes)
        ]  # fmt: skip
        assert find_inside(lon, lat, np.array(boxes).ravel()).tolist() == want


def test_terms_are_added_to_some_rows_as_to_sets() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        n = int(rng.integers(0, 9))
        old = [sorted(set(rng.integers(1, 99, rng.integers(0, 4)).tolist())) for _ in range(n)]
        rows = np.sort(rng.choice(n, int(rng.integers(0, n + 1)), replace=False)).astype(np.int64)
        new = [rng.integers(1, 199, rng.integers(0, 6)).tolist() for _ in rows]
        off, term = add_to_rows(*to_column(old), rows, *to_column(new))
        want = list(old)
        for row, given in zip(rows.tolist(), new, strict=True):
            want[row] = sorted({*old[row], *given})
        assert [term[a:b].tolist() for a, b in pairwise(off.tolist())] == want
        assert len(off) == n + 1
        assert len(term) == off[-1]


def to_column(rows: list[list[int]]) -> tuple[I64, U64]:
    off = np.append(0, np.cumsum([len(row) for row in rows])).astype(np.int64)
    return off, np.array([value for row in rows for value in row], np.uint64)


def test_a_view_has_the_kinds_and_sizes_of_its_literals() -> None:
    view = LiteralView.make_empty(64)
    prefixes = ["ab", "abc", "abcdefghijkl", "éc", "zz"]
    pair = 7 << 8 | 200
    sizes = [2, 5, *(size_prefix(p) for p in prefixes), 0, pair]
    kinds = [LiteralKind.PHRASE] * 2 + [LiteralKind.PREFIX] * 5
    kinds += [LiteralKind.EQUAL, LiteralKind.PAIR]
    view.mark(np.array(kinds, np.uint8), np.array(sizes, np.uint16))
    assert np.flatnonzero(view.words[1:]).tolist() == [1, 4]
    assert np.flatnonzero(view.kinds).tolist() == sorted(set(map(int, kinds)))
    heads = np.zeros(HEADS, np.uint8)
    for prefix in prefixes:
        size = len(prefix.encode())
        heads[size_prefix(prefix) >> 8] |= 1 << min(size - 2, LONG_SIZE)
    assert view.heads[:HEADS].tolist() == heads.tolist()
    assert (view.words[0], view.heads[HEADS]) == (5, 12)
    assert np.flatnonzero(view.pairs).tolist() == [7, 200, NAME_MARKS + pair // 8]
    assert view.pairs[NAME_MARKS + pair // 8] == 1 << pair % 8
