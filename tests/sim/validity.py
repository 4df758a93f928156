"""What the simulator knows of validity: queries that end, and clocks that jump."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np

from ps2stream.protocol.frame import column_to_strings
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.protocol.validity import add_validity
from tests import naive

if TYPE_CHECKING:
    from tests.sim.world import World

VALIDITY_FROM = 1000
"""Seeds below have no objects and queries that end."""
TICKS_MS = 500
"""A query that has ended is deleted within this time, when all is at rest."""


def draw_validity(rng: random.Random, peace: int, add: Any, draw: Any, sessions: list[str]) -> None:
    """Adds the events of a seed: inserts of queries that end, and jumps of clocks. draw: of an
    expression and a region."""
    for _ in range(rng.choice([0, 3, 10, 25])):
        at, where = int(rng.random() ** 1.5 * peace), rng.randrange(3)
        after = rng.choice([0, 0, 1, 150, 600, 2_000, 9_000, 60_000])
        query = f"q{rng.randrange(12)}", rng.choice(sessions), *draw()
        add(at, "insert_until", where, *query, after, rng.random() < 0.7)
    for _ in range(rng.choice([0, 0, 1, 3])):
        ms = rng.choice([300, 2_000, 90_000]) * rng.choice([1, -1])
        add(int(rng.random() * peace), "jump", rng.choice(["actors", "dispatchers"]), ms)


def with_validity(rows: QueryRows, until: int, retro: bool) -> QueryRows:
    """Returns inserts that end then, Unix ms, 0 for never, and perhaps are matched against what is
    still valid."""
    return add_validity(rows, np.full(len(rows), until), np.full(len(rows), retro))


def find_end(world: World, name: str) -> int:
    """Returns the end of an object that is posted now, 0 for none."""
    rng = random.Random(f"{world.seed} end of {name}")
    if not world.has_validity or rng.random() < 0.4:
        return 0
    return world.clock.wall_ms() + rng.choice([1, 200, 1_000, 3_000, 20_000, 600_000])


def find_missing_numbers(numbers: set[int], unknown: set[tuple[int, int]]) -> list[int]:
    """Returns some numbers of a session that neither a pair nor a gap has, of those before the
    last."""
    missing, following = [], 1
    for first, last in sorted({(number, number) for number in numbers} | unknown):
        if first > following:
            missing.append(following)
        following = max(following, last + 1)
    return missing


def find_ends(world: World, queries: dict[int, naive.Query]) -> set[int]:
    """Returns the LSNs at which queries ended, of all in the ledger. Each is at or behind the end
    by the sequencer's clock, and at rest none is overdue."""
    ends: set[int] = set()
    live: dict[int, naive.Query] = {}
    ledger = world.ledger
    for rows, now_ms in zip(ledger.history, ledger.times, strict=True):
        inserted = set(rows.lsn[rows.kind == UpdateKind.INSERT].tolist())
        names = column_to_strings(rows.id_off, rows.id)
        lsns, handles = rows.lsn.tolist(), rows.handle.tolist()
        for i, (lsn, handle) in enumerate(zip(lsns, handles, strict=True)):
            if rows.kind[i] == UpdateKind.INSERT:
                live[lsn] = queries[lsn]
                continue
            query = live.pop(handle)
            asked = ledger.requests_at.get(lsn, ("", ""))
            if lsn in inserted or asked[0] == names[i]:
                continue
            ends.add(lsn)
            if query.until is None or now_ms < query.until:
                world.wrong(f"{query} ended at {lsn}, when it was {now_ms}")
    now_ms = world.clock.wall_ms("actors") - TICKS_MS
    for handle, query in live.items():
        if query.until is not None and query.until <= now_ms:
            world.wrong(f"{query} of LSN {handle} lives on at {now_ms}")
    return ends
