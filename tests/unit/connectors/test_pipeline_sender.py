"""Publishing a partition: seqs, windows, repeats, refusals, and what ends it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from ps2stream.client.answers import Receipt, RefusedRow
from ps2stream.connectors import pipeline_sender
from ps2stream.connectors.pipeline_rows import RowConverter
from ps2stream.connectors.pipeline_sender import (
    CHUNK_BITS,
    IN_FLIGHT,
    PartitionPublisher,
    PartitionResult,
    SenderOptions,
)
from ps2stream.dispatcher.gateway import AcceptedBatch, PublicationIdentity
from ps2stream.dispatcher.producers import ProducerWindows
from ps2stream.errors import Unauthenticated, Unavailable, invalid
from ps2stream.limits import BATCH_ROWS, PRODUCER_WINDOW
from ps2stream.posts.members import AttributeChoice
from ps2stream.protocol.arrow_ipc import to_ipc

BIG = "x" * 60_000
"""A text of which 34 fill a chunk."""


class WindowedService:
    """A service with the windows of a dispatcher: it publishes, or gives the first answer."""

    def __init__(self) -> None:
        self.published: list[str] = []
        self.seqs: list[int] = []
        self.fail: Callable[[int], None] = lambda seq: None
        self.refuse: Callable[[str], bool] = lambda text: False
        self.in_flight = self.most_in_flight = 0
        self._windows = ProducerWindows()
        self._lock = threading.Lock()

    def publish(
        self, chunk: pa.RecordBatch, *, allow_partial: bool, producer: str, seq: int
    ) -> Receipt:
        assert allow_partial
        with self._lock:
            self.in_flight += 1
            self.most_in_flight = max(self.in_flight, self.most_in_flight)
        try:
            self.fail(seq)
            with self._lock:
                return self._publish_once(chunk, producer, seq)
        finally:
            with self._lock:
                self.in_flight -= 1

    def _publish_once(self, chunk: pa.RecordBatch, producer: str, seq: int) -> Receipt:
        import hashlib

        digest = hashlib.blake2b(to_ipc(chunk), digest_size=16).digest()
        identity = PublicationIdentity(producer, seq, digest)
        texts = chunk.column("text").to_pylist()
        refused = [i for i, text in enumerate(texts) if self.refuse(text)]
        if self._windows.find(identity) is None:
            self.seqs.append(seq)
            self.published += [
                id for i, id in enumerate(chunk.column("id").to_pylist()) if i not in refused
            ]
            self._windows.add(identity, AcceptedBatch(0, 0, 1))
        wrong = tuple(RefusedRow(i, invalid("text", "is bad")) for i in refused)
        return Receipt("durable", 0, 0, len(chunk) - len(refused), 1, wrong)


@pytest.fixture
def service() -> WindowedService:
    return WindowedService()


def part_of(numbers: range, text: str = "a", wrong: tuple[int, ...] = ()) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "id": [str(i) for i in numbers],
            "lon": [999.0 if i in wrong else 1.0 for i in numbers],
            "lat": [1.0] * len(numbers),
            "text": [text] * len(numbers),
        }
    )


def publish(
    service: WindowedService,
    parts: Iterator[pa.RecordBatch] | list[pa.RecordBatch],
    epoch: int = 0,
    bad: str = "stop",
) -> PartitionResult:
    options = SenderOptions("", {}, {}, None, bad)
    publisher = PartitionPublisher(service, "feed/0", epoch, options)
    return publisher.publish(parts, RowConverter({}, AttributeChoice(None), "feed/0/0/"))


def test_chunks_have_the_seqs_of_their_micro_batch(service: WindowedService) -> None:
    size = 2 * BATCH_ROWS + 5
    for epoch in (0, 3):
        assert publish(service, [part_of(range(size))], epoch)[:2] == (size, 0)
    first = 3 << CHUNK_BITS
    assert sorted(service.seqs) == [1, 2, 3, first + 1, first + 2, first + 3]
    assert len(service.published) == 2 * size


def test_a_repeat_publishes_what_is_missing_and_nothing_twice(service: WindowedService) -> None:
    rows = part_of(range(34 * 40), BIG)

    def fail(seq: int) -> None:
        if seq > 17:
            raise Unavailable("gone")

    service.fail = fail
    done = publish(service, [rows])
    assert done.error_kind == "Unavailable"
    assert "feed/0: gone" in done.error
    assert 0 < len(service.published) < len(rows)
    service.fail = lambda seq: None
    parts = [rows.slice(i, 100) for i in range(0, len(rows), 100)]  # other parts, the same rows
    assert publish(service, parts)[:2] == (len(rows), 0)
    assert sorted(service.published, key=int) == [str(i) for i in range(len(rows))]


def test_a_repeat_of_more_than_the_service_remembers_is_recognised(
    service: WindowedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seqs that are older than the window were published: nothing later is sent before."""
    size = (PRODUCER_WINDOW + 50) * 4

    def cut(parts: Any) -> Iterator[pa.RecordBatch]:
        for part in parts:
            yield from (part.slice(i, 4) for i in range(0, len(part), 4))

    monkeypatch.setattr(pipeline_sender, "cut_chunks", cut)
    for _ in range(2):
        assert publish(service, [part_of(range(size))])[:2] == (size, 0)
    assert sorted(service.published, key=int) == [str(i) for i in range(size)]


def test_no_more_than_some_are_in_flight_and_all_of_them_are(service: WindowedService) -> None:
    together = threading.Barrier(IN_FLIGHT)

    def fail(seq: int) -> None:
        together.wait(30)

    service.fail = fail
    size = 34 * IN_FLIGHT * 3
    assert publish(service, [part_of(range(size), BIG)]).published == size
    assert service.most_in_flight == IN_FLIGHT


def test_other_rows_under_the_same_seq_end_the_work(service: WindowedService) -> None:
    publish(service, [part_of(range(5))])
    done = publish(service, [part_of(range(4))])
    assert done.error_kind == "AlreadyExists"
    assert "has not given the same rows again" in done.error
    assert len(service.published) == 5


def test_a_bad_row_stops_its_partition_before_its_chunk(service: WindowedService) -> None:
    parts = [part_of(range(BATCH_ROWS)), part_of(range(BATCH_ROWS, BATCH_ROWS + 9), wrong=(8195,))]
    done = publish(service, parts)
    assert (done.published, done.bad) == (BATCH_ROWS, 1)
    assert service.seqs == [1]
    assert json.loads(done.letters)["row"] == 8195


@pytest.mark.parametrize("bad", ["skip", "file"])
def test_bad_rows_are_counted_and_kept(service: WindowedService, bad: str) -> None:
    service.refuse = lambda text: text == "no"
    parts = [part_of(range(9), wrong=(2, 4)), part_of(range(9, 12), "no")]
    done = publish(service, parts, 7, bad)
    assert (done.published, done.bad, done.error) == (7, 5, "")
    letters = [json.loads(line) for line in done.letters.splitlines()]
    assert [letter["record"]["id"] for letter in letters] == (
        [] if bad == "skip" else ["2", "4", "9", "10", "11"]
    )
    assert all(letter["batch"] == 7 and letter["reason"] for letter in letters)


def test_errors_of_the_service_are_passed_on(service: WindowedService) -> None:
    def fail(seq: int) -> None:
        raise Unauthenticated("no token")

    service.fail = fail
    done = publish(service, [part_of(range(3))])
    assert (done.error_kind, done.error) == ("Unauthenticated", "feed/0: no token")
