"""The keys of values: their order, their kernels, and how programs compare them."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from ps2stream.language import attribute_kernels as kernels
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.language.literal_kernels import hold_terms
from ps2stream.language.predicate_terms import hash_predicate
from ps2stream.language.predicates import COMPARISONS, Predicate
from ps2stream.language.values import (
    Value,
    decode_value,
    number_value,
    read_bare_value,
    text_value,
    time_value,
    write_value,
)
from ps2stream.limits import COMPARED_TEXT_BYTES
from ps2stream.protocol.frame import U64
from ps2stream.protocol.programs import compare_value, comparison_size, write_comparison
from tests import naive_predicates as naive
from tests.support.attributes import (
    FLOATS,
    INFINITIES,
    INTEGERS,
    LONGER,
    NAMES,
    TEXTS,
    TIMES,
    opaque_column,
    some_attributes,
    some_value,
    value_of,
)

KEYS = Analyzer(Analysis(salt=7)).keys
NUMBERS: list[float] = [*INTEGERS, *FLOATS, *INFINITIES]
VALUES: list[naive.Scalar] = [*NUMBERS, *TEXTS, *LONGER, *TIMES, True, False]


def some_number(rng: random.Random) -> float:
    kind = rng.randrange(4)
    if kind == 0:
        return rng.randrange(-(2**63), 2**63) >> rng.randrange(64)
    near = rng.choice(NUMBERS) if kind == 1 else rng.randrange(-(2**63), 2**63)
    if kind == 2:
        return float(np.nextafter(float(near), rng.choice([0.0, np.inf])))
    found: float = struct.unpack("<d", rng.randbytes(8))[0]
    return found if found == found else 0.0


def test_keys_are_in_the_order_of_what_they_stand_for() -> None:
    rng = random.Random(1)
    values = [*VALUES, *(some_number(rng) for _ in range(150))]
    for a, b in itertools.product(values, repeat=2):
        x, y, mine, other = value_of(a), value_of(b), naive.comparable(a), naive.comparable(b)
        assert (x.type == y.type) == (mine[0] == other[0])
        assert (x == y) == (mine == other), (a, b)
        if x.type == y.type:
            assert (x.key < y.key) == (mine < other), (a, b)


def test_values_are_read_as_they_are_written() -> None:
    rng = random.Random(2)
    for value in [*VALUES, *(some_number(rng) for _ in range(2000))]:
        key = value_of(value)
        found = decode_value(key)
        assert naive.comparable(found) == naive.comparable(value)
        if not isinstance(value, str) and value not in INFINITIES:
            assert read_bare_value(write_value(key)) == key


def test_times_beyond_the_years_of_datetime_are_milliseconds() -> None:
    for time_ms in (2**63 - 1, -(2**63), 253402300800000, -62135596800001):
        assert decode_value(time_value(time_ms)) == time_ms
    last = datetime(9999, 12, 31, 23, 59, 59, 999000, UTC)
    assert decode_value(time_value(253402300799999)) == last


@pytest.mark.parametrize("number", [float("nan"), 2**63, -(2**63) - 1])
def test_what_is_no_number_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match=r"is beyond 64-bit|is not a number"):
        number_value(number)


# --- kernels ----------------------------------------------------------------------------


def test_kernels_make_the_same_keys() -> None:
    rng = random.Random(3)
    room, out = np.zeros(1, np.uint64), np.zeros(16, np.uint8)
    for number in [*NUMBERS, *(some_number(rng) for _ in range(3000))]:
        if isinstance(number, int):
            size = kernels.put_integer(np.int64(number), room, out)
        else:
            size = kernels.put_number(np.float64(number).view(np.uint64), out)
        assert out[:size].tobytes() == number_value(number).key, number


def naive_terms(attributes: Mapping[str, naive.Scalar], chosen: set[int]) -> list[int]:
    """The naive twin of `search_attributes`, of one object."""
    values = [(name, value_of(value)) for name, value in attributes.items()]
    satisfied = [Predicate(name, "EXISTS") for name, _ in values]
    satisfied += [Predicate(name, op, value) for name, value in values for op in ("<", "=")]
    return sorted(chosen.intersection(hash_predicate(KEYS, each) for each in satisfied))


def naive_words(attributes: Mapping[str, naive.Scalar], chosen: set[int]) -> dict[int, list[int]]:
    """The naive twin of `list_values`, of one object: by term what stands behind it."""
    found = {}
    for name, value in attributes.items():
        type_, key = value_of(value)
        term = hash_predicate(KEYS, Predicate(name, "<", value_of(value)))
        if term in chosen:
            found[term] = listed([(term, Value(type_, key))]).tolist()[1:]
    return found


def split_words(words: list[int]) -> dict[int, list[int]]:
    """What `list_values` wrote of one object, by term."""
    found: dict[int, list[int]] = {}
    while words:
        end = 2 + ((words[1] & 0xFFFFFFFF) + 7) // 8
        assert words[0] not in found
        found[words[0]] = words[1:end]
        words = words[end:]
    return found


@pytest.mark.takes_turns(2)
@pytest.mark.parametrize("seed", range(8))
def test_objects_are_searched_as_their_naive_twins_are(seed: int) -> None:
    rng = random.Random(seed)
    things = [some_attributes(rng) for _ in range(40)]
    payload = rng.choice([b"", b"\x0a\x02ab"])
    chosen = set()
    for name in NAMES:
        value = value_of(rng.choice([some_value(rng), *(t[name] for t in things if name in t)]))
        for op in rng.sample(["EXISTS", "<", "="], rng.randrange(4)):
            chosen.add(hash_predicate(KEYS, Predicate(name, op, None if op == "EXISTS" else value)))
    table = np.zeros(256, np.uint64)
    hold_terms(table, np.array(sorted(chosen), np.uint64))
    opaque = opaque_column(things, payload)
    found_off, found = kernels.search_attributes(
        *opaque, table, (True, True, True), np.zeros(0, np.uint8), KEYS
    )
    off, word = kernels.list_values(*opaque, table, KEYS)
    for i, attributes in enumerate(things):
        mine = found[found_off[i] : found_off[i + 1]].tolist()
        assert sorted(mine) == naive_terms(attributes, chosen)
        mine = word[off[i] : off[i + 1]].tolist()
        assert split_words(mine) == naive_words(attributes, chosen)


def test_numbers_of_any_size_and_names_of_any_length_have_their_terms() -> None:
    """So also those at the limits of what is read without a call."""
    near = [2**k + d for k in (0, 7, 14, 42, 48, 49, 50, 53, 56, 62) for d in (-1, 0, 1)]
    for size, number in itertools.product(
        (1, 109, 110, 111, 127, 128), [*near, -1, -0.0, 0.5, 7.0]
    ):
        name = "n" * size
        predicate = Predicate(name, "=", value_of(number))
        table = np.zeros(8, np.uint64)
        hold_terms(table, np.array([hash_predicate(KEYS, predicate)], np.uint64))
        opaque = opaque_column([{"m": True, name: number, "o": "x"}], b"")
        _, found = kernels.search_attributes(
            *opaque, table, (False, False, True), np.zeros(0, np.uint8), KEYS
        )
        assert found.tolist() == [hash_predicate(KEYS, predicate)], (size, number)


def test_terms_are_told_apart_by_every_part() -> None:
    values = [value_of(v) for v in VALUES]
    predicates = {Predicate(name, "=", v) for name in NAMES for v in values}
    predicates |= {Predicate(name, op, values[0]) for name in NAMES for op in ("EXISTS", "<")}
    predicates = {p._replace(value=None) if p.op == "EXISTS" else p for p in predicates}
    terms = {hash_predicate(KEYS, predicate) for predicate in predicates}
    assert len(terms) == len(predicates)
    same = {hash_predicate(KEYS, Predicate("a", op, v)) for op in COMPARISONS for v in values}
    assert len(same) == 1  # all comparisons of an attribute share a term


def listed(values: list[tuple[int, Value]]) -> U64:
    """The values of an object, as `list_values` writes them."""
    words: list[int] = []
    for term, (type_, key) in values:
        key = key[: COMPARED_TEXT_BYTES + 1]
        padded = key + bytes(-len(key) % 8)
        words += [term, type_ << 32 | len(key)]
        words += [int.from_bytes(padded[i : i + 8]) for i in range(0, len(padded), 8)]
    return np.array(words, np.uint64)


def some_text(rng: random.Random) -> str:
    size = rng.choice([0, 1, 7, 8, 9, 15, 16, 17, 255, 256, 257, 258, 1000, 1024])
    beginning = "y" * rng.choice([0, size, max(size - 1, 0), size // 2])
    return beginning + "".join(rng.choices("\0y\x01\x7f", k=size - len(beginning)))


@pytest.mark.parametrize("seed", range(4))
def test_programs_compare_as_python_does(seed: int) -> None:
    rng, term = random.Random(seed), 0xFEDCBA9876543210
    outcomes = []
    for _ in range(4000):
        mine, wanted = (
            text_value(some_text(rng)) if rng.random() < 0.6 else value_of(some_value(rng))
            for _ in range(2)
        )
        wanted = Value(wanted.type, wanted.key[:COMPARED_TEXT_BYTES])
        others = [(rng.choice([0, 1, term - 1]), value_of(some_value(rng))) for _ in range(2)]
        at = rng.randrange(4)  # 3: the object has no such value
        values = listed([*others[:at], *([(term, mine)] * (at < 3)), *others[at:]])
        for number, op in enumerate(COMPARISONS):
            written = [9, 9, *write_comparison(63, number, wanted.type, wanted.key), -20]
            prog = np.array(written, np.int16)
            # In the pools of indexes a value has a word.
            pool = prog.astype(np.int64).astype(np.uint64) if rng.random() < 0.5 else prog
            bounded = np.concatenate([np.array([term, 8], np.uint64), values, values])
            found = compare_value(pool, 2, np.uint64(term), bounded, 2, 2 + len(values))
            has = {"a": mine} if at < 3 else {}
            assert found == Predicate("a", op, wanted).holds(has), (mine, op, wanted)
            assert comparison_size(prog, 2) == len(written) - 3
            outcomes.append(found)
    assert 0.1 < np.mean(outcomes) < 0.9


# --- as queries write them --------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("3", 3),
        ("+3", 3),
        ("-0", 0),
        ("-0.0", 0),
        (".5", 0.5),
        ("5.", 5),
        ("1e3", 1000),
        ("1E-3", 0.001),
        ("9007199254740993", 2**53 + 1),
        ("9007199254740993.0", 2**53),
        ("9223372036854775807.0", 2.0**63),
        ("00000000000000000000000000012", 12),
        ("-" + "0" * 5000 + "9223372036854775808", -(2**63)),
        ("1e-400", 0),
        ("true", True),
        ("false", False),
        ("2026-11-24", datetime(2026, 11, 24, tzinfo=UTC)),
        ("2026-11-24t10:00z", datetime(2026, 11, 24, 10, tzinfo=UTC)),
        ("2026-11-24T10:00:00.5-01:30", datetime(2026, 11, 24, 11, 30, 0, 500_000, UTC)),
        ("2026-11-24 10:00Z", datetime(2026, 11, 24, 10, tzinfo=UTC)),
        ("1969-12-31T23:59:59.999Z", datetime(1970, 1, 1, tzinfo=UTC) - timedelta(milliseconds=1)),
        ("TRUE", True),
        ("\u22123", -3),
    ],
)
def test_bare_values(written: str, value: naive.Scalar) -> None:
    assert read_bare_value(written) == value_of(value)
    assert naive.bare_value(written) == naive.comparable(value)


@pytest.mark.parametrize(
    "written", ["usgs", "null", "0x10", "1_000", "1e", "e5", "--1", "٣", "inf", "nan", "."]
)
def test_what_is_no_bare_value(written: str) -> None:
    assert read_bare_value(written) is None
