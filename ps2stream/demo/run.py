"""The demo: a live stream against queries that are inserted and deleted, and its verification.

Three threads use the public client: one publishes at a steady rate, one inserts and
deletes queries, one receives the matches. At the end, once every match is delivered, a
sample of the published objects is compared with brute force (`verify.py`).
"""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from ps2stream.client.client import Client
from ps2stream.demo.gazetteer import (
    QuerySeed,
    distinctive,
    made_posts,
    make_query,
    seeds_of,
    tell_of_flood,
)
from ps2stream.demo.tally import DeliveryTally, PublishedBatch
from ps2stream.demo.verify import BruteForceOracle
from ps2stream.errors import FailedPrecondition, Unavailable
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.posts.arrow_columns import SCHEMA
from ps2stream.posts.post import paced
from ps2stream.posts.readers import read_posts

SEED_POSTS = 5000  # posts that queries are made from
KEPT_OBJECTS = 500_000  # published objects that are kept for the sample
PUBLISH_S = 0.05  # a batch holds the objects of this time
CHURN_S = 0.1
DRAIN_S = 60.0
WARM_UP_S = 300.0


@dataclasses.dataclass(frozen=True)
class DemoOptions:
    """The options of a demo. input None: made-up posts; seconds None: until stopped; rate in
    objects a second; churn in inserts, and as many deletes, a second."""

    input: str | None = None
    format: str | None = None
    seconds: float | None = 30.0
    rate: float = 2000.0
    queries: int = 2000
    churn: float = 20.0
    sample: int = 500
    seed: int = 1
    stemmer: str | None = None
    stop_words: str | None = None
    fold: tuple[str, ...] = ()


class DemoRun:
    """A demo that runs once. `run` blocks, `stop` ends it early; the counters may be read
    meanwhile."""

    def __init__(self, target: str, options: DemoOptions, name: str) -> None:
        self.options = options
        self.session = f"demo-{name}"
        self.phase = "reading posts"  # the current step, for people
        self.inserted = self.deleted = self.missed = 0
        self.tally = DeliveryTally(KEPT_OBJECTS)
        self.recent: deque[Any] = deque(maxlen=12)  # the newest matches
        self.expressions: dict[str, str] = {}
        self._target = target
        seeds = np.random.default_rng(options.seed).spawn(3)
        self._post_random, self._query_random, self._sample_random = seeds
        analysis = Analysis(
            salt=0, stemmer=options.stemmer, stop_words=options.stop_words, fold=options.fold
        )
        self._analyzer = Analyzer(analysis)
        self._oracle = BruteForceOracle(analysis)
        self._live: list[str] = []
        self._end = f"{self.session}-end"
        self._ended = threading.Event()
        self._stopping = threading.Event()
        self._failure: BaseException | None = None

    @property
    def live(self) -> int:
        """The number of queries of this run that are live now."""
        return len(self._live)

    def stop(self) -> None:
        """Ends the stream now; `run` goes on to verify what was published."""
        self._stopping.set()

    def run(self) -> dict[str, Any]:
        """Streams, waits for every delivery and verifies a sample; returns the summary.

        Raises Ps2StreamError when the service or the input fails.
        """
        posts = self._read_posts(max(1, round(self.options.rate * PUBLISH_S)))
        seeds, posts = self._draw_seeds(posts)
        with Client(self._target) as client:
            receiver = self._start_thread(self._receive_matches, client)
            self.phase = f"inserting {self.options.queries:,} queries"
            self._insert_queries(client, seeds, self.options.queries)
            self.phase = "warming up: compiling what was not compiled before"
            self._warm_up(client, posts)
            self.phase = "streaming"
            churner = self._start_thread(self._churn_queries, client, seeds)
            began = time.monotonic()
            try:
                self._publish_stream(client, posts, began)
            finally:
                self._stopping.set()
                churner.join(DRAIN_S)
            seconds = time.monotonic() - began
            self.phase = "waiting for the last matches"
            self._await_deliveries(client)
            receiver.join(DRAIN_S)
            self.phase = f"comparing {self.options.sample:,} objects with brute force"
            summary = self._verify_sample(seconds)
            self._delete_queries(client)
        return summary

    # --- the stream -------------------------------------------------------------

    def _read_posts(self, batch: int) -> Iterator[Any]:
        """Yields record batches without end: the file again and again, or made-up posts."""
        path, format = self.options.input, self.options.format
        if path is None:
            posts = made_posts(self._post_random, batch)
            yield from tell_of_flood(posts, np.random.default_rng(self.options.seed))
            return
        kept = list(read_posts(path, format, batch)) if path == "-" else None
        while True:
            empty = True
            for part in kept if kept is not None else read_posts(path, format, batch):
                empty = False
                yield part
            if empty:
                raise FailedPrecondition(f"{path} contains no posts")

    def _draw_seeds(self, posts: Iterator[Any]) -> tuple[list[QuerySeed], Iterator[Any]]:
        """Returns the seeds that queries are made from, and the stream with their posts put back at
        its head."""
        head: list[Any] = []
        seeds: list[QuerySeed] = []
        while len(seeds) < SEED_POSTS and sum(map(len, head)) < 4 * SEED_POSTS:
            head.append(next(posts))
            seeds += seeds_of(head[-1], self._analyzer)
        if not seeds:
            raise FailedPrecondition(f"the posts of {self.options.input} contain no words")
        return distinctive(seeds), chain(head, posts)

    def _warm_up(self, client: Client, posts: Iterator[Any]) -> None:
        """Publishes a batch and deletes a query, twice: the service compiles its kernels on first
        use."""
        for _ in range(2):
            self._publish_one(client, next(posts), due=math.nan)
            self._await_idle(client, time.monotonic() + WARM_UP_S)
            self._delete_one(client)

    def _publish_stream(self, client: Client, posts: Iterator[Any], began: float) -> None:
        rate, seconds = self.options.rate, self.options.seconds
        due = began
        for part in paced(posts, rate, time.monotonic, self._stopping.wait):
            if self._stopping.is_set() or (seconds is not None and due - began >= seconds):
                return
            self._publish_one(client, part, due)
            due += len(part) / rate

    def _publish_one(self, client: Client, part: Any, due: float) -> None:
        """Publishes a batch that is due at this monotonic second; NaN: it is not timed."""
        ack = client.publish_arrow(part)
        self.tally.published(PublishedBatch(ack.partition, ack.first_offset, ack.lsn, due, part))

    def _receive_matches(self, client: Client) -> None:
        with client.subscribe(self.session) as matches:
            for match in matches:
                self.missed = matches.missed
                if match.query_id == self._end:
                    self._ended.set()
                    return
                place = (match.partition, match.offset)
                self.tally.received(place, match.query_id, time.monotonic())
                self.recent.append(match)

    # --- queries ----------------------------------------------------------------

    def _insert_queries(self, client: Client, seeds: list[QuerySeed], count: int) -> None:
        made = [make_query(self._query_random, seeds) for _ in range(count)]
        rows = [(f"{self.session}-{self.inserted + i}", *query) for i, query in enumerate(made)]
        lsns = client.insert_many(rows, session=self.session)
        for (id, expression, region), lsn in zip(rows, lsns, strict=True):
            self._oracle.inserted(id, expression, region, lsn)
            self.expressions[id] = expression or "(any text)"
            self._live.append(id)
        self.inserted += count

    def _churn_queries(self, client: Client, seeds: list[QuerySeed]) -> None:
        due = 0.0
        while not self._stopping.wait(CHURN_S):
            due += self.options.churn * CHURN_S
            count, due = int(due), due % 1.0
            if count:
                self._insert_queries(client, seeds, count)
            for _ in range(count):
                self._delete_one(client)

    def _delete_one(self, client: Client) -> None:
        at = int(self._query_random.integers(len(self._live)))
        self._live[at], self._live[-1] = self._live[-1], self._live[at]
        id = self._live.pop()
        self._oracle.deleted(id, client.delete(id))
        self.deleted += 1

    def _delete_queries(self, client: Client) -> None:
        """Deletes the queries of this run, so that none is left on a service that keeps running."""
        client.delete_many([*self._live, self._end], refused=[])

    # --- the end ----------------------------------------------------------------

    def _await_deliveries(self, client: Client) -> None:
        """Waits until every match has been delivered.

        Once no batch is in flight, all matches are in the session's ordered stream. One more
        query and one object for it then make a match that is delivered after all of them.
        """
        deadline = time.monotonic() + DRAIN_S
        self._await_idle(client, deadline)
        client.insert(self._end, self._end_word, None, session=self.session)
        row = {"id": ["end"], "time": [None], "lon": [0.0], "lat": [0.0], "text": [self._end_word]}
        client.publish_arrow(pa.RecordBatch.from_pydict(row, schema=SCHEMA))
        while not self._ended.wait(0.1):
            self._check_progress(deadline)

    def _await_idle(self, client: Client, deadline: float) -> None:
        """Waits until every published batch has been matched by all workers concerned."""
        while client.status()["in_flight"]:
            self._check_progress(deadline)
            time.sleep(0.02)

    @property
    def _end_word(self) -> str:
        return "end" + "".join(c for c in self.session if c.isalnum())

    def _check_progress(self, deadline: float) -> None:
        if self._failure is not None:
            raise self._failure
        if time.monotonic() > deadline:
            raise Unavailable("the service did not match the published objects in time")

    def _start_thread(self, work: Callable[..., None], *args: Any) -> threading.Thread:
        def guarded() -> None:
            try:
                work(*args)
            except BaseException as error:  # noqa: BLE001 - raised again by `run`
                self._failure = error
                self._stopping.set()

        thread = threading.Thread(target=guarded, name=work.__name__, daemon=True)
        thread.start()
        return thread

    def _verify_sample(self, seconds: float) -> dict[str, Any]:
        if self._failure is not None:
            raise self._failure
        tally = self.tally
        sample = tally.sample(self.options.sample, self._sample_random)
        differences = list(self._oracle.differences(sample, tally.delivered))
        equal = len(sample) - len(differences)
        return {
            "input": self.options.input,
            "seconds": round(seconds, 2),
            "objects": tally.objects,
            "queries": {
                "inserted": self.inserted,
                "deleted": self.deleted,
                "live": self.live,
            },
            "matches": tally.matches,
            "missed": self.missed,
            "objects_per_second": round(tally.objects / max(seconds, 1e-9), 1),
            "latency_ms": tally.latency_ms(),
            "sampled": len(sample),
            "sampled_matches": sum(len(tally.delivered.get(s.place, ())) for s in sample),
            "equal": equal,
            "differences": [dataclasses.asdict(d) for d in differences[:10]],
            "verified": f"{equal} of {len(sample)} sampled objects equal brute force",
        }
