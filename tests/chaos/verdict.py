"""What the oracle says of a history: what had to be delivered, and what was."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from tests import naive
from tests.chaos.history import Batch, Change, History

LASTS_S = 20.0
"""After a stop."""
SHOWN = 5
"""Examples of each kind of violation."""


@dataclass
class Verdict:
    """`lost`, `duplicates`, `false` and `other` must all be 0 for a contract that holds;
    `examples` shows some of what was not."""

    published: int = 0
    unknown: int = 0
    refused: int = 0
    expected: int = 0
    delivered: int = 0
    retro: int = 0
    withdrawn: int = 0
    repeats: int = 0
    gaps: int = 0
    lost: int = 0
    duplicates: int = 0
    false: int = 0
    other: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def broken(self) -> bool:
        return bool(self.lost or self.duplicates or self.false or self.other)

    def show(self, kind: str, what: object) -> None:
        if sum(e.startswith(kind) for e in self.examples) < SHOWN:
            self.examples.append(f"{kind}: {what}")


Pair = tuple[str, str]  # query, object


def expected(history: History) -> dict[str, set[Pair]]:
    """For each session the pairs of acknowledged objects, each as of its LSN."""
    pairs: dict[str, set[Pair]] = {name: set() for name in history.sessions}
    for batch, live in _replayed(history):
        for name, obj in zip(batch.names, batch.objects, strict=True):
            for change in live:
                if naive.matches(change.query, obj):
                    pairs[change.query.session].add((change.query.id, name))
    for session, pair in _of_before(history):
        if pair[1] not in history.withdrawn:
            pairs[session].add(pair)
    return pairs


def _of_before(history: History) -> Iterator[tuple[str, Pair]]:
    """The session and the pairs of queries with retro with objects that came before them and are
    still valid. Each of these words is of one query and a few objects."""
    by_word: dict[str, list[tuple[Batch, str, naive.Obj]]] = {}
    for batch in history.batches:
        for name, obj in zip(batch.names, batch.objects, strict=True):
            if obj.until and batch.lsn >= 0:
                by_word.setdefault(obj.text, []).append((batch, name, obj))
    for changes in history.queries.values():
        for change in changes:
            query = change.query
            if not (query.retro and change.inserted):
                continue
            for batch, name, obj in by_word.get(query.expression, []):
                if naive.meets(query, change.inserted, 0, math.inf, obj, batch.lsn):
                    yield query.session, (query.id, name)


def missing(history: History, due: dict[str, set[Pair]]) -> int:
    """How many of these have not come; announced gaps may hold some."""
    count = 0
    for name, seen in history.sessions.items():
        got = {(p[0], p[1]) for p in list(seen.pairs) if p is not None}
        count += max(len(due[name] - got) - seen.gaps, 0)
    return count


def judge(history: History, due: dict[str, set[Pair]]) -> Verdict:
    """Everything at once, when nothing is under way any more."""
    found = Verdict()
    for batch in history.batches:
        found.published += len(batch.names) * (batch.lsn >= 0)
        found.unknown += len(batch.names) * (batch.lsn == -1)
        found.refused += len(batch.names) * (batch.lsn == -2)
    of_before = [pair for _, pair in _of_before(history)]
    found.withdrawn = sum(name in history.withdrawn for _, name in of_before)
    found.retro = len(of_before) - found.withdrawn
    _offsets(history, found)
    uncertain: dict[str, list[list[Change]]] = {}
    for name, seen in history.sessions.items():
        pairs = [p for p in seen.pairs if p is not None]
        got = Counter((p[0], p[1]) for p in pairs)
        found.expected += len(due[name])
        found.delivered += len(pairs)
        found.repeats += seen.repeats
        found.gaps += seen.gaps
        left = sorted(due[name] - got.keys())
        if len(left) > seen.gaps:
            found.lost += len(left)
            for pair in left[:SHOWN]:
                found.show("lost", f"{name}: {pair}, LSN {history.where[pair[1]][0].lsn}")
        for pair, count in got.items():
            if count > 1:
                found.duplicates += count - 1
                found.show("duplicate", f"{name}: {pair} {count} times")
            if pair not in due[name] and not _may(history, name, pair, uncertain):
                found.false += 1
                found.show("false", f"{name}: {pair}")
        for problem in seen.problems:
            found.other += 1
            found.show("other", problem)
    for name, changes in uncertain.items():
        if not _at_once(history.where[name][0], changes):
            found.false += 1
            found.show("false", f"{name} was matched as of no single LSN")
    for problem in history.problems:
        found.other += 1
        found.show("other", problem)
    return found


def _replayed(history: History) -> Iterator[tuple[Batch, list[Change]]]:
    """The acknowledged batches in the order of their LSNs, each with the queries live."""
    every = (c for changes in history.queries.values() for c in changes if c.inserted)
    changes = sorted(every, key=lambda c: c.inserted)
    live: list[Change] = []
    coming = iter([*changes, None])
    after = next(coming)
    for batch in sorted((b for b in history.batches if b.lsn >= 0), key=lambda b: b.lsn):
        while after is not None and after.inserted <= batch.lsn:
            live.append(after)
            after = next(coming)
        live = [c for c in live if not c.deleted or c.deleted > batch.lsn]
        yield batch, live


def _may(
    history: History, session: str, pair: Pair, uncertain: dict[str, list[list[Change]]]
) -> bool:
    """Whether the pair is one of an object whose acceptance nobody was told of, and right. What it
    may be a match of is added to `uncertain`: one of those that had its id one after the other."""
    changes, place = history.queries.get(pair[0], []), history.where.get(pair[1])
    if place is None or place[0].lsn != -1:
        return False
    thing = place[0].objects[place[1]]
    found = [c for c in changes if c.query.session == session and naive.matches(c.query, thing)]
    if found:
        uncertain.setdefault(pair[1], []).append(found)
    return bool(found)


def _at_once(batch: Batch, found: list[list[Change]]) -> bool:
    """Whether there is one LSN, not below the one known before, at which one of each was live."""
    points = {batch.floor, *(c.inserted for changes in found for c in changes)}
    return any(
        all(any(c.inserted <= lsn < (c.deleted or 1 << 62) for c in changes) for changes in found)
        for lsn in points
        if lsn >= batch.floor
    )


def _offsets(history: History, found: Verdict) -> None:
    """No two objects have one place, and each was delivered with the one it was told."""
    owner: dict[tuple[int, int], str] = {}
    for batch in history.batches:
        if batch.lsn >= 0:
            for i, name in enumerate(batch.names):
                if owner.setdefault((batch.partition, batch.offset + i), name) != name:
                    found.other += 1
                    found.show("other", f"{name} has the offset of another object")
    for seen in history.sessions.values():
        for pair in seen.pairs:
            if pair is None:
                continue
            if owner.setdefault((pair[2], pair[3]), pair[1]) != pair[1]:
                found.other += 1
                found.show("other", f"{seen.name}: {pair} has the offset of another object")


def recoveries(
    history: History, faults: list[tuple[float, str]], others: list[tuple[float, str]]
) -> dict[str, dict[str, dict[str, float]]]:
    """Seconds from each fault until every lane (dispatcher x session x stripe) had delivered
    an object that was published after it, and an update asked for after it was answered: n,
    p50 and max by what it was. "alone": of those that were over before anything else went
    wrong; "all": also of those that overlapped."""
    found: dict[str, dict[str, list[float]]] = {"alone": {}, "all": {}}
    busy = 0.0  # until then something else is wrong
    events = sorted([*faults, *others])
    for i, (at, what) in enumerate(events):
        lanes = [*history.arrivals.values(), history.updates]
        end = max(min((b for a, b in lane if a >= at), default=math.inf) for lane in lanes)
        counts = (at, what) in faults and end < math.inf
        if counts:
            found["all"].setdefault(what, []).append(end - at)
        if counts and at > busy and (i + 1 == len(events) or events[i + 1][0] > end):
            found["alone"].setdefault(what, []).append(end - at)
        busy = max(busy, end if counts else at + LASTS_S)
    return {
        which: {
            what: {"n": len(s), "p50": round(median(s), 2), "max": round(max(s), 2)}
            for what, s in sorted(of.items())
        }
        for which, of in found.items()
    }
