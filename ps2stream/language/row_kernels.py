# mypy: disallow-untyped-decorators=False
"""Numba kernels over rows of queries: ids that need a look, and the column `source`."""

from __future__ import annotations

from numba import njit

from ps2stream.protocol.frame import I64, U8


@njit(cache=True, nogil=True)
def count_odd_ids(off: I64, data: U8, most: int) -> int:
    """Returns how many ids have not 1 to `most` bytes, or another byte than ASCII without NUL."""
    odd = 0
    for i in range(len(off) - 1):
        size = off[i + 1] - off[i]
        plain = 1 <= size <= most
        for k in range(off[i], off[i + 1]):
            plain &= 0 < data[k] < 0x80
        odd += not plain
    return odd


@njit(cache=True, nogil=True)
def measure_sources(
    geom_off: I64, text_off: I64, text: U8, typed_off: I64, typed: U8, off: I64
) -> None:
    """Fills off[n + 1], the offsets of sources: a byte, the geometry (whose offsets count float64
    elements), the canonical text, and, where it was typed in other words, a NUL and these. An empty
    canonical text has no other words."""
    off[0] = 0
    for i in range(len(off) - 1):
        a, b = text_off[i], typed_off[i]
        size, more = text_off[i + 1] - a, typed_off[i + 1] - b
        differs = size != more
        if not differs:
            for k in range(size):
                if text[a + k] != typed[b + k]:
                    differs = True
                    break
        words = geom_off[i + 1] - geom_off[i]
        off[i + 1] = off[i] + 1 + 8 * words + size + (more + 1 if differs and size > 0 else 0)


@njit(cache=True, nogil=True)
def write_sources(
    shape: U8,
    geometry: tuple[I64, U8],
    canonical: tuple[I64, U8],
    written: tuple[I64, U8],
    off: I64,
    out: U8,
) -> None:
    """Writes row i of `out`: its shape, the bytes of its geometry (whose offsets count float64
    elements), its canonical text, and, where `off` leaves room for it, a NUL and the text as it
    was typed. `off` is already filled. Ragged columns are pairs (int64[n + 1], uint8[])."""
    geom_off, geom = geometry
    text_off, text = canonical
    typed_off, typed = written
    for i in range(len(shape)):
        at = off[i]
        out[at] = shape[i]
        at += 1
        for k in range(8 * geom_off[i], 8 * geom_off[i + 1]):
            out[at] = geom[k]
            at += 1
        for k in range(text_off[i], text_off[i + 1]):
            out[at] = text[k]
            at += 1
        if at == off[i + 1]:
            continue
        out[at] = 0
        at += 1
        for k in range(typed_off[i], typed_off[i + 1]):
            out[at] = typed[k]
            at += 1
