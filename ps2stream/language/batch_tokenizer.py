"""Splitting texts into tokens by the kernels, in slices, for a caller who may leave meanwhile.

`tokenizer.split` is the definition; what is here returns the same tokens, holds no GIL while a
kernel runs, and asks between slices of about SLICE_BYTES whether a caller still waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from ps2stream.errors import Cancelled
from ps2stream.language import tokenizer_kernels as kernels
from ps2stream.language.character_tables import character_tables
from ps2stream.language.tokenizer import SplitText
from ps2stream.limits import FOLDED_TEXT_BYTES
from ps2stream.protocol.frame import I64, U8, Array, column_to_strings, sealed, strings_to_column

SLICE_BYTES: Final = 64 * 1024
"""The bytes of text in a slice: some ten milliseconds of the worst text."""
GROWTH: Final = 16
"""The most bytes that folding makes of a byte that is not ASCII; of an ASCII byte it makes one."""


def is_always_wanted() -> bool:
    """Stands for a caller who does not leave."""
    return True


def check_wanted(is_wanted: Callable[[], bool]) -> None:
    """Raises Cancelled when the caller has left."""
    if not is_wanted():
        raise Cancelled("the call was cancelled; nothing was done")


class TokenSlice(NamedTuple):
    """The tokens of consecutive rows, with repeats: token i is the UTF-8 of
    tokens[token_off[i]:token_off[i + 1]], tokens row_off[r] to row_off[r + 1] are those of the
    r-th row in order, whose folded text has folded_size[r] bytes; int64, uint8. is_side uint8: 1
    for a side word, which is behind the word that it belongs to."""

    folded_size: I64
    row_off: I64
    token_off: I64
    tokens: U8
    is_side: U8


def split_column(
    off: I64,
    text: U8,
    rows: Array,
    is_wanted: Callable[[], bool] = is_always_wanted,
    foldings: frozenset[str] = frozenset(),
) -> Iterator[TokenSlice]:
    """Yields the tokens of some rows (int64[n]) of a ragged column of UTF-8 texts, folded also
    by `foldings`, in slices.

    Damaged UTF-8 separates tokens. Raises Cancelled when the caller has left.
    """
    tables = character_tables(foldings)
    size = np.cumsum(off[rows + 1] - off[rows])
    begin = 0
    while begin < len(rows):
        check_wanted(is_wanted)
        before = size[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(size, before + SLICE_BYTES, "right")))
        yield TokenSlice(
            *kernels.split_rows(sealed(off), sealed(text), sealed(rows[begin:end]), tables)
        )
        begin = end


def split_text(text: str, foldings: frozenset[str] = frozenset()) -> SplitText:
    """Returns what `tokenizer.split` does."""
    column = strings_to_column([text])
    (found,) = split_column(*column, np.zeros(1, np.int64), foldings=foldings)
    tokens = column_to_strings(found.token_off, found.tokens)
    return SplitText(tokens, found.is_side.astype(bool).tolist())


def find_overlong(
    off: I64, text: U8, most_bytes: int, is_wanted: Callable[[], bool] = is_always_wanted
) -> list[tuple[int, int]]:
    """Returns (row, bytes once folded) of the texts over FOLDED_TEXT_BYTES, in row order. Texts
    of more than `most_bytes` unfolded are not looked at: they are refused for that.

    Raises Cancelled when the caller has left.
    """
    found = []
    size = np.diff(off)
    for row in np.flatnonzero((size * GROWTH > FOLDED_TEXT_BYTES) & (size <= most_bytes)).tolist():
        data = text[off[row] : off[row + 1]]
        if len(data) + (GROWTH - 1) * np.count_nonzero(data & 0x80) > FOLDED_TEXT_BYTES:
            (one,) = split_column(off, text, np.array([row]), is_wanted)
            if one.folded_size[0] > FOLDED_TEXT_BYTES:
                found.append((row, int(one.folded_size[0])))
    return found
