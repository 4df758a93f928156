"""ps2stream/assistant/untrusted.py: nothing in a text is invisible, and nothing is long."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.assistant.untrusted import (
    MAX_ATTRIBUTES,
    MAX_TEXT,
    describe_untrusted,
    write_out,
)

TEXTS = st.text(st.characters(codec=None), max_size=40)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines\tand", "two\nlines\tand"),
        ("Überschwemmung 東京 🌊", "Überschwemmung 東京 🌊"),
        ("👩‍🚒 می‌خواهم ❤️", "👩‍🚒 می‌خواهم ❤️"),
        ("a\x00b\x1b[2J\x85", "a<U+0000>b<U+001B>[2J<U+0085>"),
        ("\u202eevil\u2066", "<U+202E>evil<U+2066>"),
        ("\U000e0049\U000e0067", "<U+E0049><U+E0067>"),
        ("a\U000e0101", "a<U+E0101>"),
        ("zero\u200bwidth\ufeff", "zero<U+200B>width<U+FEFF>"),
        ("\u2028\u2029", "<U+2028><U+2029>"),
        ("\ud800", "<U+D800>"),
        ("\ue000", "<U+E000>"),
    ],
)
def test_hidden_characters_are_written_out(text: str, shown: str) -> None:
    assert write_out(text) == shown


@given(TEXTS)
def test_nothing_hidden_is_left(text: str) -> None:
    shown = write_out(text)
    shown.encode()
    left = {unicodedata.category(c) for c in shown if c not in "\n\t\u200c\u200d"}
    assert not left & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert write_out(shown) == shown


@given(TEXTS, st.dictionaries(TEXTS, TEXTS | st.integers() | st.booleans(), max_size=3))
def test_a_post_is_json_whatever_it_says(text: str, attributes: dict[str, object]) -> None:
    found = describe_untrusted({"object_id": text, "text": text, "attributes": attributes})
    assert json.loads(json.dumps(found, ensure_ascii=False).encode()) == found
    assert found["cut"] == []


def test_what_is_long_is_cut_and_told() -> None:
    row = {
        "object_id": "a",
        "text": "\u202e" * (MAX_TEXT + 1),
        "attributes": {"k": "x" * MAX_ATTRIBUTES},
    }
    found = describe_untrusted(row)
    assert found["untrusted_text"] == "<U+202E>" * MAX_TEXT
    assert found["untrusted_attributes"] == {}
    assert found["cut"] == ["untrusted_text", "untrusted_attributes"]


def test_a_post_without_text_has_an_empty_one() -> None:
    found = describe_untrusted({"object_id": "a"})
    assert (found["untrusted_text"], found["untrusted_attributes"]) == ("", {})
