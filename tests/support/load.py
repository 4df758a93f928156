"""A load of real posts for a service, and what it should deliver."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from tests import naive
from tests.support.real_posts import SESSIONS, posts, some_query

BATCH = 25
HELD = 300


class Load(threading.Thread):
    """Inserts, deletes and posts until it is stopped, and what they were."""

    def __init__(self, service: RunningService, tweets: Path) -> None:
        super().__init__(daemon=True)
        self.posts = posts(tweets, 20_000)
        self.rng = random.Random(11)
        self.clients = [Client(target, timeout=90) for target in service.targets]
        self.queries: dict[int, naive.Query] = {}
        self.died: dict[int, int] = {}
        self.stamped: list[tuple[str, int, naive.Obj]] = []
        self.stopping = threading.Event()
        self.problem: BaseException | None = None
        self._live: list[int] = []
        self._seq = 0

    def insert(self, n: int) -> None:
        for _ in range(n):
            name, session = f"q{len(self.queries)}", self.rng.choice(SESSIONS)
            expression, region = some_query(self.rng, self.posts[:3000])
            lsn = self.rng.choice(self.clients).insert(name, expression, region, session=session)
            self.queries[lsn] = naive.Query(name, session, expression, region)
            self._live.append(lsn)

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self._step()
        except BaseException as error:
            self.problem = error
            raise

    def _step(self) -> None:
        self.insert(1)
        handle = self._live.pop(self.rng.randrange(len(self._live)))
        self.died[handle] = self.rng.choice(self.clients).delete(self.queries[handle].id)
        begin = len(self.stamped)
        part = [(f"o{begin + i}", p) for i, p in enumerate(self.posts[begin : begin + BATCH])]
        rows = [{"id": n, "text": text, "lon": lon, "lat": lat} for n, (text, lon, lat) in part]
        client, self._seq = self.rng.choice(self.clients), self._seq + 1
        # So it is repeated when a dispatcher dies before it has answered.
        lsn = client.publish(rows, producer="load", seq=self._seq).lsn
        self.stamped += [(n, lsn, naive.Obj(lon, lat, text)) for n, (text, lon, lat) in part]
        time.sleep(0.02)

    def stop(self) -> None:
        self.stopping.set()
        self.join()
        assert self.problem is None

    def expected(self) -> dict[str, Counter[tuple[str, str]]]:
        found: dict[str, Counter[tuple[str, str]]] = {s: Counter() for s in SESSIONS}
        for handle, query in self.queries.items():
            for name, lsn, obj in self.stamped:
                if handle <= lsn < self.died.get(handle, lsn + 1) and naive.matches(query, obj):
                    found[query.session][query.id, name] += 1
        return found
