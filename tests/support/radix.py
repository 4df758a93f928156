"""What a radix GI2 holds, read from its arrays."""

from __future__ import annotations

from ps2stream.workers.radix import layout
from ps2stream.workers.radix.gi2 import RadixGI2


def holders_of_slot(index: RadixGI2, slot: int) -> list[int]:
    """The handles of those who hold a slot, deleted ones included."""
    arrays = index._arrays
    own, word, extras = arrays.slots_i[
        slot, [layout.HANDLE, layout.SESSION, layout.SECOND]
    ].tolist()
    chunk = 0
    if word & layout.KIND_MASK == layout.BLOCK and extras:
        chunk = -int(arrays.pool[extras + layout.X_DELETED].astype("int64"))
    if chunk <= 0:
        return [own] if own >= 0 else []
    out: list[int] = []
    while chunk:
        behind = int(arrays.holders[2 * chunk + 1])
        first = 2 * (chunk + 1)
        out += arrays.holders[first : first + 2 * (behind >> 40) : 2].tolist()
        chunk = behind & (1 << 40) - 1
    return out
