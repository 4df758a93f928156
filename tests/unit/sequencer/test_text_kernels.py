"""Texts of sources are packed, and read back as they were."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.protocol.frame import sealed
from ps2stream.sequencer.table_kernels import NONE
from ps2stream.sequencer.text_kernels import WORDS, pack_text, unpack_text

PIECES = st.sampled_from(
    [b" AND ", b" OR ", b" ", b"\0", b"\1", b"a", b"bb", b"AND", b"OR", "\u00e9".encode(), b"\xff"]
)


def pack(text: bytes) -> bytes | None:
    """The packed text, behind and before bytes that are not its own; None if it is not packed."""
    source = sealed(np.frombuffer(b"<" + text + b">", np.uint8))
    out = np.full(len(text) + 10, 60, np.uint8)
    end = pack_text(source, 1, 1 + len(text), out, 1, np.empty(3 * WORDS, np.int64))
    assert out[0] == out[-1] == 60
    return None if end == NONE else out[1:end].tobytes()


def unpack(packed: bytes, size: int) -> bytes:
    out = np.full(size + 2, 60, np.uint8)
    data = np.frombuffer(packed, np.uint8).copy()
    end = unpack_text(data, 0, len(data), out, 1, np.full(3 * WORDS, -9))
    assert end == 1 + size
    assert out[0] == out[-1] == 60
    return out[1:end].tobytes()


@settings(deadline=None)
@given(st.lists(PIECES, max_size=40).map(b"".join))
def test_a_text_is_read_back_as_it_was(text: bytes) -> None:
    packed = pack(text)
    assert packed is not None
    assert len(packed) <= len(text)
    assert unpack(packed, len(text)) == text


@given(st.binary(max_size=20), st.integers(2, 31), st.binary(max_size=20))
def test_a_text_with_bytes_that_mean_something_is_not_packed(
    head: bytes, byte: int, tail: bytes
) -> None:
    assert pack(head + bytes([byte]) + tail) is None


@pytest.mark.parametrize(
    ("text", "packed"),
    [
        (b"flood AND rain", b"flood\2rain"),
        (b"a OR b\0b OR a", b"a\3b\0\5\3\4"),
        (b"rain AND sea\0sea and rain", b"rain\2sea\0\5 and \4"),
        (b"rain\0Rain rain\0rain", b"rain\0Rain \4\0\4"),
        (b" AND AND ", b"\2AND "),
    ],
)
def test_operators_and_repeated_words_are_one_byte(text: bytes, packed: bytes) -> None:
    assert pack(text) == packed
    assert unpack(packed, len(text)) == text


def test_only_the_first_words_have_numbers() -> None:
    words = [b"w%d" % i for i in range(WORDS + 2)]
    text = b" ".join(words) + b"\0" + b" ".join(words)
    packed = pack(text)
    assert packed is not None
    assert packed.endswith(bytes([31, 32]) + b" ".join(words[WORDS:]))
    assert unpack(packed, len(text)) == text
