"""Memory goes back to the system once a process rests after a flood."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from ps2stream.cluster.allocator import REST_BYTES, SPARE_BYTES, MemoryReturn

MIB = 1 << 20


def test_memory_goes_back_at_rest_and_only_where_there_is_some() -> None:
    resident, returned = [100 * MIB], []

    def give_back() -> None:
        returned.append(resident[0])
        resident[0] = 100 * MIB

    memory = MemoryReturn(lambda: resident[0], give_back)
    memory.look(0)
    returned.clear()
    resident[0] += SPARE_BYTES  # no more than it may keep
    memory.look(0)
    assert returned == []
    resident[0] += 1
    memory.look(REST_BYTES)  # it logs: it does not rest
    assert returned == []
    memory.look(2 * REST_BYTES - 1)
    assert returned == [100 * MIB + SPARE_BYTES + 1]
    memory.look(2 * REST_BYTES - 1)
    assert len(returned) == 1


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not the C library glibc")
def test_what_is_free_between_smaller_pieces_goes_back() -> None:
    code = """
from ps2stream.cluster.allocator import bound_heaps, return_free_memory
from ps2stream.observability.process import resident_bytes
bound_heaps()
pieces = [bytes(b"x" * 300_000) for _ in range(600)]
most = resident_bytes()
kept = pieces[::50]
del pieces
held = resident_bytes()
return_free_memory()
print(most - held, held - resident_bytes())
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    by_itself, returned = map(int, found.stdout.split())
    assert by_itself < 20 * MIB  # the pieces that are kept hold it
    assert returned > 100 * MIB
