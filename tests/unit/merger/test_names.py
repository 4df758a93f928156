"""The names of queries, added, forgotten and moved together."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.merger.names import MIN_COMPACT, QueryNames
from ps2stream.protocol.frame import column_to_strings, strings_to_column


def test_names_survive_forgetting_and_growth() -> None:
    names = QueryNames()
    for start in range(1, 10_001, 500):
        handles = np.arange(start, start + 500)
        names.add(handles, *strings_to_column(f"n{h}é" for h in handles.tolist()))
    for start in range(1, 8_001, 100):
        names.forget(np.arange(start, start + 100))
        names.forget(np.arange(start, start + 2))  # again
    assert len(names) == 2_000
    some = np.array([10_000, 8_001, 9_999])
    assert column_to_strings(*names.of(some)) == ["n10000é", "n8001é", "n9999é"]
    for unknown in (7, 10_001):
        asked = np.array([8_001, unknown])
        assert names.known(asked).tolist() == [True, False]
        with pytest.raises(KeyError, match=f"query {unknown}"):
            names.of(asked)


def test_names_keep_their_tenants_also_when_they_are_moved_together() -> None:
    names = QueryNames()
    count = 4 * MIN_COMPACT
    handles = np.arange(1, count + 1)
    names.add(handles, *strings_to_column(f"t\0q{h}" if h % 2 else f"q{h}" for h in handles))
    names.forget(handles[:-3])
    assert len(names) == 3
    last = handles[-3:]
    assert column_to_strings(*names.of(last)) == [f"q{h}" for h in last]
    assert column_to_strings(*names.kept(last)) == [f"t\0q{h}" if h % 2 else f"q{h}" for h in last]
    with pytest.raises(KeyError, match="no name for query 1"):
        names.kept(handles[:1])
