"""Reads the chunks of a log from its topic: those whose transactions were committed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from ps2stream.errors import Unavailable
from ps2stream.store.kafka_chunks import ChunkHeader, ChunkOffsets, ChunkRun, LogChunk
from ps2stream.store.kafka_cluster import KafkaCluster, damage_error

PAGE = 4 << 20
"""Bytes of frames that are read at a time."""
_NEAR = 1 << 20  # bytes that are read through rather than looked for
_AT_ONCE = 64  # messages
_POLL_S = 0.2
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_DAMAGED = (KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError.INVALID_MSG)
_CONFIG = {
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "check.crcs": True,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 50,
    "fetch.error.backoff.ms": 50,
    "fetch.queue.backoff.ms": 2,
    "max.partition.fetch.bytes": PAGE,
    "queued.max.messages.kbytes": 2 * PAGE >> 10,
}


class MessagesGone(Exception):
    """The messages at an offset have been deleted."""


class KafkaReader:
    """Reads the log of this name; one thread at a time."""

    def __init__(self, cluster: KafkaCluster, name: str, patience_s: float) -> None:
        """Waits for brokers that are away for `patience_s`. Raises InvalidArgument."""
        self._cluster = cluster
        self._name = name
        self._topic = cluster.topic(name)
        self._patience_s = patience_s
        # No group is joined; librdkafka wants a name.
        self._consumer = cluster.make(Consumer, _CONFIG | {"group.id": self._topic})
        self._after = -1  # the position of the chunk that comes next; -1: unknown
        self._ahead: LogChunk | None = None  # the one that comes next, if it was read already

    def close(self) -> None:
        """Releases the consumer; idempotent."""
        self._consumer.close()

    def find_first(self, start: int, stop: int) -> LogChunk | None:
        """Returns the first chunk between two offsets; None if there is none. Raises MessagesGone,
        and as read_page."""
        return next(self._read_chunks(start, stop), None)

    def find_last(self, start: int, stop: int) -> LogChunk | None:
        """Returns the last chunk between two offsets, looking from the end; None if there is none.
        Raises as find_first."""
        step = 8
        while True:
            begin = max(start, stop - step)
            last = deque(self._read_chunks(begin, stop), 1)
            if last or begin == start:
                return last.pop() if last else None
            step *= 8

    def read_page(self, position: int, stop: int, offsets: ChunkOffsets) -> ChunkRun:
        """Returns the chunks from the one that holds `position` on, about PAGE bytes, with whole
        frames, up to `stop`, the end of a frame. `offsets` knows the first chunk, and learns.

        Raises MessagesGone where they have been deleted, DataDirectoryError where they are
        damaged, Unavailable when the brokers do not answer.
        """
        if position != self._after:
            self._assign(self._find_offset(position, offsets))
        run = ChunkRun()
        self._after = -1
        for chunk in self._poll_chunks():
            offsets.add(chunk)
            if run.bytes >= PAGE and not chunk.header.continues:
                self._ahead = chunk
                break
            if chunk.end > position:
                base = chunk.header.base
                if base > position if not run.bytes else base != run.end:
                    raise self._report_gap(run.end if run.bytes else position, chunk)
                run.append(base, chunk.data)
            if chunk.end >= stop:
                break
        self._after = run.end
        return run

    def _report_gap(self, end: int, chunk: LogChunk) -> Exception:
        problem = f"position {end} is followed by position {chunk.header.base}"
        return damage_error(self._cluster, self._name, problem)

    def _find_offset(self, position: int, offsets: ChunkOffsets) -> int:
        """Returns the offset of a chunk that begins at a position or shortly before."""
        known = offsets.find(position)
        assert known is not None
        low_at, low = known
        found = offsets.find_next(position)
        if found is None:
            return low
        high_at, high = found
        while high_at - low_at > _NEAR and high - low > _AT_ONCE:
            middle = (low + high) // 2
            chunk = self.find_first(middle, high)
            if chunk is None:
                high = middle
                continue
            offsets.add(chunk)
            if chunk.header.base <= position:
                low_at, low = chunk.header.base, chunk.offset
            else:
                high_at, high = chunk.header.base, middle
        return low

    def _read_chunks(self, start: int, stop: int) -> Iterator[LogChunk]:
        """Yields the chunks from one offset to another."""
        self._assign(start)
        self._after = -1
        for chunk in self._poll_chunks(stop):
            if chunk.offset >= stop:
                return
            yield chunk

    def _assign(self, offset: int) -> None:
        self._ahead = None
        self._consumer.assign([TopicPartition(self._topic, 0, offset)])

    def _poll_chunks(self, stop: int | None = None) -> Iterator[LogChunk]:
        """Yields the chunks that follow; ends where none is left before the offset `stop`, else
        waits for more."""
        if (ahead := self._ahead) is not None:
            self._ahead = None
            yield ahead
        what = f"the topic {self._topic} cannot be read"
        give_up = time.monotonic() + self._patience_s
        while time.monotonic() < give_up:
            with self._cluster.translate_errors(what):
                message = self._consumer.poll(_POLL_S)
            if message is None:
                continue
            if (error := message.error()) is None:
                yield self._decode_message(message)
                give_up = time.monotonic() + self._patience_s
            elif error.code() != KafkaError._PARTITION_EOF:
                self._check_error(error, what)
            elif stop is not None and (message.offset() or 0) >= stop:
                return
        raise Unavailable(f"{self._cluster}: {what}: no answer for {self._patience_s:g} s")

    def _check_error(self, error: KafkaError, what: str) -> None:
        """Raises for an error that waiting does not end."""
        if error.code() in _GONE:
            raise MessagesGone
        if error.code() in _DAMAGED:
            raise damage_error(self._cluster, self._name, error.str())
        found = self._cluster.explain(error, what)
        if not isinstance(found, Unavailable):
            raise found

    def _decode_message(self, message: Message) -> LogChunk:
        offset, raw, data = message.offset(), message.key(), message.value()
        assert offset is not None
        place = f"{self._cluster}, topic {self._topic}, offset {offset}"
        key = raw if isinstance(raw, bytes) else b""
        body = data if isinstance(data, bytes) else b""
        return LogChunk(offset, ChunkHeader.decode(key, place), body)
