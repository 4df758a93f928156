"""How many messages a batch costs, counted over the real machines."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from ps2stream.cluster.local_runtime import LocalRuntime
from ps2stream.cluster.topology import Topology
from ps2stream.language.analyzer import Analysis
from ps2stream.language.expression import compile_column
from ps2stream.language.query_rows import build_rows
from ps2stream.protocol.addresses import Send
from ps2stream.protocol.frame import column_to_strings, strings_to_column
from ps2stream.protocol.messages.updates import MergerQueries
from ps2stream.protocol.rows import ObjectRows
from ps2stream.routing.plan import text_plan
from ps2stream.space.grid import Grid
from ps2stream.space.regions import Rect
from ps2stream.store.memory import MemoryStore

SESSIONS = 12
NEAR, FAR = (0.5, 0.5), (30.0, 30.0)  # in one cell; what lies far is in no query's region
REGION = Rect(0.0, 0.0, 1.0, 1.0)


class CountingRuntime(LocalRuntime):
    """Counts what its machines send to one another. Worker i owns the term word{i}, and
    `queries` are the terms of query q0, q1 and so on, each in the next session."""

    def __init__(self, workers: int, mergers: int, queries: list[str]) -> None:
        self.sent: Counter[str] = Counter()
        self.session: dict[str, int] = {}  # by query
        terms = {f"word{i}": i for i in range(workers)}
        plan = text_plan(Analysis(salt=7), Grid(3, 2), workers, terms)
        super().__init__(Topology(plan, mergers=mergers), MemoryStore())
        [edge] = self.edges
        compiled = compile_column(*strings_to_column(queries), edge.analyzer, edge.frequencies)
        ids = strings_to_column(f"q{i}" for i in range(len(queries)))
        rows = build_rows(ids, compiled, [REGION] * len(queries))
        sessions = [f"s{i % SESSIONS}" for i in range(len(queries))]
        edge.update(rows, sessions, [""] * len(queries))

    def publish(self, texts: list[str], places: list[tuple[float, float]]) -> Counter[str]:
        """Publishes a batch; returns how many messages of each kind it has cost."""
        [edge] = self.edges
        self.sent.clear()
        lon, lat = np.array(places).T
        text = strings_to_column(texts)
        time = np.zeros(len(texts), np.int64)
        terms = edge.analyzer.analyse(*text)
        edge.publish(ObjectRows(*text, time, lon, lat, *text, *terms), durable=False)
        assert edge.status()["in_flight"] == 0
        return self.sent.copy()

    def _post_sends(self, sends: list[Send]) -> None:
        self.sent.update(type(frame).__name__ for _, frame in sends)
        for _, frame in sends:
            if isinstance(frame, MergerQueries):
                ids = column_to_strings(frame.id_off, frame.id)
                self.session |= dict(zip(ids, frame.session.tolist(), strict=True))
        super()._post_sends(sends)


@pytest.mark.parametrize(("workers", "mergers"), [(1, 1), (4, 2), (8, 4)])
def test_a_batch_costs_two_messages_for_each_worker_and_each_merger_that_it_concerns(
    workers: int, mergers: int
) -> None:
    rng = random.Random(workers)
    words = [f"word{i}" for i in range(workers)]
    queries = [*words, *(rng.choice(words) for _ in range(2 * workers))]
    runtime = CountingRuntime(workers, mergers, queries)
    seen: Counter[tuple[int, int, int]] = Counter()  # workers, mergers and messages of a batch
    batches = [(words, NEAR), (words, FAR), (["rain"], NEAR)]
    batches += [
        (rng.choices([*words, "rain"], k=rng.randint(1, workers)), rng.choice([NEAR, FAR]))
        for _ in range(60)
    ]
    for texts, place in batches:
        asked = {*texts} - {"rain"}
        numbers = {runtime.session[f"q{i}"] for i, word in enumerate(queries) if word in asked}
        concerned = {number % mergers for number in numbers} if place == NEAR else set()
        sent = runtime.publish(texts, [place] * len(texts))
        assert sent == Counter(
            RoutedObjects=len(asked),
            MatchBatch=len(asked),
            MatchRelease=len(concerned),
            ReleasesKept=len(concerned),
        )
        seen[len(asked), len(concerned), sent.total()] += 1
    assert (workers, mergers, 2 * workers + 2 * mergers) in seen
    assert (workers, 0, 2 * workers) in seen
    assert (0, 0, 0) in seen
    runtime.close()
    print(f"\n{workers} workers, {mergers} mergers: (workers, mergers, messages) of a batch")  # noqa: T201
    for (some, of, messages), times in sorted(seen.items()):
        print(f"  {some} {of}: {messages:2} messages, {times} times")  # noqa: T201
