"""Rows that are applied in one call, as far as nothing grows, against a registry and a dict."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest

from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.rows import QueryRows
from ps2stream.sequencer import registry
from ps2stream.sequencer.apply_kernels import REMOVED, STALE, WAIT, apply_updates
from tests.support.sequencing import cut_hashes
from tests.support.updates import delete, insert, query_rows


@pytest.mark.parametrize("bits", [8, 64])
@pytest.mark.parametrize("chunk", [16, 200, 1 << 16])
def test_rows_are_applied_in_one_call_or_as_things_grow(bits: int, chunk: int) -> None:
    """Chunks end, tables grow, rows are deleted in the batch that inserts them; every outcome
    comes about, and the live ids are those of a dict."""
    rng = np.random.default_rng(bits + chunk)
    twin: dict[str, int] = {}
    lsn, seen, grown = 0, set[int](), 0

    def watch(*args: Any) -> tuple[int, ...]:
        nonlocal grown
        found: tuple[int, ...] = apply_updates(*args)
        seen.add(found[5])
        grown += found[3] < found[0]
        return found

    with (
        cut_hashes(bits),
        mock.patch.object(registry, "CHUNK", chunk),
        mock.patch.object(registry, "apply_updates", watch),
    ):
        queries = registry.QueryRegistry(salt=3)
        for step in range(80):
            share = 0.9 if step % 9 == 1 else 0.02
            gone = [id for id in twin if rng.random() < share]
            born = [f"{step}-{i}" for i in range(rng.integers(0, 60))]
            brief = [f"brief {step}"] if step % 5 == 0 else []
            updates = [insert(id) for id in born + brief] + [delete(id) for id in gone + brief]
            rows = query_rows(updates, lsn + 1)
            fresh = dict(zip(born + brief, rows.handle.tolist(), strict=False))
            known = twin | fresh
            handles = [known[row[1]] for row in updates]
            queries.apply_prepared(prepare(queries, rows.replace(handle=np.array(handles))))
            twin = {id: handle for id, handle in known.items() if id not in gone + brief}
            lsn += len(rows)
            queries.forget(lsn)
            found = queries.handles(*strings_to_column([*twin, *gone, "never"]))
            assert found.tolist() == [*twin.values()] + [0] * (len(gone) + 1)
    assert {WAIT, STALE} <= seen
    assert REMOVED in seen or chunk == 16  # whose last chunk grows at each step
    assert grown


def prepare(queries: registry.QueryRegistry, rows: QueryRows) -> registry.PreparedRows:
    """Rows with the places of the queries that they delete, as decide.py prepares them."""
    hashes = queries.hash(rows.id_off, rows.id)
    places = queries.find(rows.id_off, rows.id, hashes).place
    return registry.PreparedRows(registry.encode(rows), hashes, places)


def test_a_delete_of_what_is_not_there_is_an_error() -> None:
    queries = registry.QueryRegistry()
    queries.apply(query_rows([insert("a"), insert("b")], 1))
    rows = prepare(queries, query_rows([delete("a")], 3).replace(handle=np.array([1])))
    queries.apply_prepared(rows)
    with pytest.raises(KeyError):
        queries.apply_prepared(rows)
