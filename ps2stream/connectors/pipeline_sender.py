"""Publishing a partition of a micro-batch: in chunks, many in flight, each with its own number.

Runs in a Python worker of Spark's, which keeps its connections for further partitions.
"""

from __future__ import annotations

import atexit
import json
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow as pa

from ps2stream.client.answers import Receipt
from ps2stream.client.client import Client
from ps2stream.connectors.pipeline_rows import BadRow, RowConverter, cut_chunks, read_values
from ps2stream.errors import AlreadyExists, FailedPrecondition, Ps2StreamError, Unavailable
from ps2stream.limits import PRODUCER_WINDOW
from ps2stream.posts.members import AttributeChoice

log = logging.getLogger(__name__)

PATIENCE_S = 600.0
"""Time that a service may be full or away before a task fails."""
IN_FLIGHT = 8
"""Chunks of a partition that may be unanswered. Below PRODUCER_WINDOW: see PartitionPublisher."""
CHUNK_BITS = 20
"""Bits of a seq for the number of a chunk; those above them are for the micro-batch."""
assert IN_FLIGHT < PRODUCER_WINDOW

_clients: dict[tuple[Any, ...], Client] = {}
_pool: list[ThreadPoolExecutor] = []


def open_client(server: str, access: Mapping[str, str]) -> Client:
    """Returns this process's client of a service, which is opened once and closed at exit."""
    key = (server, *sorted(access.items()))
    if key not in _clients:
        options: Mapping[str, Any] = access
        client = Client(server, timeout=PATIENCE_S, **options)
        _clients[key] = client
        atexit.register(client.close)
    return _clients[key]


def _open_pool() -> ThreadPoolExecutor:
    if not _pool:
        _pool.append(ThreadPoolExecutor(IN_FLIGHT, "publishing"))
    return _pool[0]


class SenderOptions(NamedTuple):
    """What the partitions of a pipeline have in common. attributes: the type of each, by name.
    choice: the spec of AttributeChoice. bad: what becomes of rows that are no posts: stop, skip or
    file."""

    server: str
    access: Mapping[str, str]
    attributes: Mapping[str, str]
    choice: str | None
    bad: str


class PartitionResult(NamedTuple):
    """What became of a partition. published: rows that the service has made durable, now or at an
    earlier try. bad: rows that are no posts. letters: these, in lines of JSON, where they are
    wanted; otherwise the first. error: the kind and text of what ended the work, or empty."""

    published: int
    bad: int
    letters: str
    error_kind: str
    error: str


class RowsRefused(Exception):
    """Ends a partition with a bad row, where those stop the pipeline."""


class PartitionPublisher:
    """Publishes the rows of a partition, chunk after chunk.

    Chunk c of micro-batch e has the seq `e << CHUNK_BITS | c`, plus one, of the producer. A repeat
    has the same seqs over the same rows; so the service answers those that it has published with
    their first answer. It remembers the last PRODUCER_WINDOW, and refuses older ones without
    telling whether it published them. Here it did: of chunk c + IN_FLIGHT, and so of any
    PRODUCER_WINDOW - IN_FLIGHT later chunks, nothing is sent before chunk c is durable.
    """

    def __init__(self, client: Any, producer: str, epoch: int, options: SenderOptions) -> None:
        self._client = client
        self._producer = producer
        self._epoch = epoch
        self._options = options
        self._published = 0
        self._bad = 0
        self._letters: list[str] = []

    def publish(self, parts: Iterable[pa.RecordBatch], converter: RowConverter) -> PartitionResult:
        """Publishes record batches of RowConverter's; returns once all of them are durable."""
        kind = error = ""
        try:
            self._publish_chunks(cut_chunks(self._convert_parts(parts, converter)))
        except RowsRefused:
            pass
        except (Ps2StreamError, TimeoutError) as found:
            is_late = isinstance(found, TimeoutError | Unavailable)
            hint = f", and so it has been for {PATIENCE_S:g} s" if is_late else ""
            kind = type(Unavailable("") if is_late else found).__name__
            error = f"{self._producer}: {found}{hint}"
        text = "".join(self._letters)
        return PartitionResult(self._published, self._bad, text, kind, error)

    def _convert_parts(
        self, parts: Iterable[pa.RecordBatch], converter: RowConverter
    ) -> Iterator[pa.RecordBatch]:
        done = 0
        for part in parts:
            posts, wrong = converter.convert(part, done)
            done += len(part)
            self._note_bad(wrong)
            yield posts

    def _note_bad(self, wrong: list[BadRow]) -> None:
        if not wrong:
            return
        self._bad += len(wrong)
        if self._options.bad != "skip":
            for row in wrong:
                self._letters.append(self._format_letter(row))
        if self._options.bad == "stop":
            del self._letters[1:]
            raise RowsRefused

    def _format_letter(self, bad: BadRow) -> str:
        letter = {"batch": self._epoch, "producer": self._producer, "row": bad.row}
        values = {"reason": bad.reason, "record": bad.values}
        return json.dumps(letter | values, ensure_ascii=False) + "\n"

    def _publish_chunks(self, chunks: Iterable[pa.RecordBatch]) -> None:
        flying = deque[tuple[pa.RecordBatch, Future[Receipt | None]]]()
        pool = _open_pool()
        try:
            for number, chunk in enumerate(chunks):
                if number >> CHUNK_BITS:
                    raise FailedPrecondition(
                        f"a partition of a micro-batch has more than {1 << CHUNK_BITS} chunks; "
                        "limit what a micro-batch reads"
                    )
                seq = (self._epoch << CHUNK_BITS | number) + 1
                flying.append((chunk, pool.submit(self._publish_chunk, chunk, seq)))
                while len(flying) >= IN_FLIGHT:
                    self._take_answer(*flying.popleft())
            self._take_answers(flying)
        except RowsRefused:
            self._take_answers(flying)  # what stands before the bad row is published
            raise
        finally:
            for _, later in flying:
                later.cancel()
            for _, later in flying:
                if not later.cancelled():
                    later.exception()  # nothing is under way when the next partition begins

    def _publish_chunk(self, chunk: pa.RecordBatch, seq: int) -> Receipt | None:
        """Publishes a chunk; returns None if an earlier try had, so long ago that the service has
        no answer to it any more."""
        try:
            return self._client.publish(  # type: ignore[no-any-return]
                chunk, allow_partial=True, producer=self._producer, seq=seq
            )
        except AlreadyExists as error:
            raise AlreadyExists(
                f"{error}: the source has not given the same rows again for this micro-batch, of "
                "which a part is published. If files were changed, or rows of one id differ, take "
                "that back; or begin with a new checkpoint, and publish what is in this "
                "micro-batch twice"
            ) from None
        except FailedPrecondition as error:
            if "producer_window" not in str(error):
                raise
            return None

    def _take_answers(self, flying: deque[tuple[pa.RecordBatch, Future[Receipt | None]]]) -> None:
        while flying:
            self._take_answer(*flying.popleft())

    def _take_answer(self, chunk: pa.RecordBatch, answer: Future[Receipt | None]) -> None:
        receipt = answer.result()
        refused = receipt.refused if receipt is not None else ()
        self._published += len(chunk) - len(refused)
        self._note_bad(
            [
                BadRow(each.row, f"refused by the service: {each.error}",
                       read_values(chunk.slice(each.row, 1)))
                for each in refused
            ]
        )  # fmt: skip


def publish_partition(
    parts: Iterable[pa.RecordBatch],
    options: SenderOptions,
    producer: str,
    epoch: int,
    prefix: str,
) -> PartitionResult:
    """Publishes a partition over this process's connection. prefix: of the ids of rows that have
    none."""
    choice = AttributeChoice(options.choice)
    converter = RowConverter(options.attributes, choice, prefix)
    client = open_client(options.server, options.access)
    result = PartitionPublisher(client, producer, epoch, options).publish(parts, converter)
    for line in choice.pop_left_out():
        log.warning("left out, as no attribute: %s", line)
    return result
