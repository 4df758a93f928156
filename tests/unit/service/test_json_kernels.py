"""The check of JSON texts against Python's parser."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.protocol.frame import sealed, strings_to_column
from ps2stream.service.json_kernels import DEEP, GOOD, JSON_DEPTH, find_json_errors

SOURCES = (
    '{"a": [1, -2.5e+3, true, false, null, "x\\u00e9\\n"], "b": {}}', '[[],{},"",0]', ' "é\\/" ', ""
)  # fmt: skip
CHARACTERS = '{}[],:"\\ue01-+.tfnrals \t\x01E/b9é'


def check(texts: list[str]) -> list[int]:
    off, data = strings_to_column(texts)
    found: list[int] = find_json_errors(sealed(off), sealed(data)).tolist()
    return found


def is_json(text: str) -> bool:
    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


def change(text: str, rng: random.Random) -> str:
    """Replaces, removes or inserts a few characters."""
    out = list(text)
    for _ in range(rng.randint(0, 3)):
        at = rng.randint(0, len(out))
        out[at : at + rng.randint(0, 1)] = rng.choice(CHARACTERS) * rng.randint(0, 1)
    return "".join(out)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_json_is_what_python_reads(seed: int) -> None:
    rng = random.Random(seed)
    texts = [change(rng.choice(SOURCES), rng) for _ in range(3_000)]
    texts += ["".join(rng.choices(CHARACTERS, k=rng.randint(0, 5))) for _ in range(1_000)]
    found = check(texts)
    assert [each == GOOD for each in found] == [is_json(text) for text in texts]
    assert 500 < found.count(GOOD) < 3_500


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


@given(JSON, st.sampled_from([None, 1]), st.booleans())
def test_what_python_writes_is_json(value: object, indent: int | None, is_ascii: bool) -> None:
    assert check([json.dumps(value, indent=indent, ensure_ascii=is_ascii)]) == [GOOD]


def test_the_byte_that_is_wrong_is_counted_from_the_texts_begin() -> None:
    texts = ["{}", "[1,2", "tru", '["é", x]', '{"a" 1}', "01", "1 2", "\ufeff1", '"\x1f"', "NaN"]
    assert check(texts) == [GOOD, 4, 3, 7, 5, 1, 2, 0, 1, 0]


def test_nesting_is_bounded() -> None:
    n = JSON_DEPTH
    assert check(["[" * n + "]" * n, "[" * (n + 1) + "]" * (n + 1)]) == [GOOD, DEEP]
    assert check(['{"a":' * n + "1" + "}" * n, '{"a":' * (n + 1)]) == [GOOD, DEEP]
    assert check(["[" + "[]," * 9999 + "[]]"]) == [GOOD]
