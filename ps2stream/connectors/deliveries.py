"""Deliveries of a session to a sink: several batches at a time, acknowledged when written."""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

from ps2stream.client.attributes import plain_attributes, plain_payload
from ps2stream.client.matches import Matches
from ps2stream.client.subscription import Subscription
from ps2stream.connectors.counts import ConnectorCounts

log = logging.getLogger(__name__)

AHEAD = 64
"""Batches that are received before earlier ones are dealt with."""


class DeliveryItem(NamedTuple):
    """A match as JSON, without its session: its number and its query's id. A gap is one, too,
    with the number of the last match that it covers, and query None."""

    number: int
    query_id: str | None
    body: str


class DeliveryReader:
    """Reads batches on a thread of its own, AHEAD of them in advance; a context manager."""

    def __init__(self, subscription: Subscription, counts: ConnectorCounts) -> None:
        self._subscription = subscription
        self._counts = counts
        self._waiting: deque[Matches] = deque()
        self._error: Exception | None = None
        self._ended = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(
            target=self._read_batches, name="ps2stream-read", daemon=True
        )

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._subscription.close()
        self._reader.join(10)

    def take(self, most: int, wait: float) -> list[Matches]:
        """Returns what is there, in order: at least one batch, and as many as have `most` pairs
        together; empty after `wait` seconds without any. Raises what ended the subscription."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._error, wait)
            found: list[Matches] = []
            size = 0
            while self._waiting and (not found or size + len(self._waiting[0]) <= most):
                found.append(self._waiting.popleft())
                size += len(found[-1])
            self._changed.notify_all()
            if not found and self._error is not None:
                raise self._error
        return found

    def done(self, number: int, count: int) -> None:
        """Acknowledges everything up to this pair, as it is where it belongs. count: its pairs."""
        self._subscription.took(number)
        self._counts.add("done", count)
        self._update_waiting()

    def cursor_at(self, number: int) -> bytes:
        """Returns the cursor after this pair; see Subscription.cursor_at."""
        return self._subscription.cursor_at(number)

    def _read_batches(self) -> None:
        try:
            for batch in self._subscription.batches(manual=True):
                with self._changed:
                    self._changed.wait_for(lambda: self._ended or len(self._waiting) < AHEAD)
                    if self._ended:
                        return
                    self._waiting.append(batch)
                    self._counts.add("taken", len(batch))
                    self._update_waiting()
                    if batch.gap is not None:
                        self._counts.add("missed", batch.gap.count)
                    self._changed.notify_all()
        except Exception as error:  # noqa: BLE001  # raised by `take`
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _update_waiting(self) -> None:
        self._counts.set("waiting", self._counts["taken"] - self._counts["done"])


def encode_items(batch: Matches) -> Iterator[DeliveryItem]:
    """Yields the matches of a batch. Each object is encoded once, however many matches it has."""
    if batch.gap is not None:
        gap: dict[str, Any] = {
            "from": batch.gap.first, "to": batch.gap.last, "count": batch.gap.count
        }  # fmt: skip
        if batch.gap.shed is not None:
            gap["shed"] = dataclasses.asdict(batch.gap.shed)
        body = json.dumps({"seq": batch.gap.first, "gap": gap})
        yield DeliveryItem(batch.gap.last, None, body)
        return
    objects = list(map(_encode_row, _build_rows(batch)))
    numbered = enumerate(zip(batch.query_ids, batch.objects.tolist(), strict=True), batch.first)
    for number, (query_id, row) in numbered:
        name = json.dumps(query_id, ensure_ascii=False)
        yield DeliveryItem(
            number, query_id, f'{{"seq": {number}, "query_id": {name}, {objects[row]}}}'
        )


def _build_rows(batch: Matches) -> Iterator[dict[str, Any]]:
    columns: dict[str, Any] = {
        "object_id": batch.object_ids,
        "offset": batch.offsets.tolist(),
        "time": None if batch.time is None else batch.time.tolist(),
        "lon": None if batch.lon is None else batch.lon.tolist(),
        "lat": None if batch.lat is None else batch.lat.tolist(),
        "text": batch.texts,
    }
    present = {name: values for name, values in columns.items() if values is not None}
    attributes = batch.attributes or [{}] * len(batch.object_ids)
    payloads = batch.payloads or [None] * len(batch.object_ids)
    rows = zip(*present.values(), strict=True)
    for row, values, payload in zip(rows, attributes, payloads, strict=True):
        made = {"partition": batch.partition, **dict(zip(present, row, strict=True))}
        if values:
            made["attributes"] = plain_attributes(values)
        if payload is not None:
            made |= plain_payload(payload)
        yield made


def _encode_row(row: dict[str, Any]) -> str:
    """Returns the members of a row as JSON that has an encoding in UTF-8, whatever its payload is.
    One with a number that JSON does not have becomes text; other rows have none of these."""
    try:
        made = json.dumps(row, ensure_ascii=False, allow_nan=False)
        made.encode()
    except UnicodeEncodeError:  # half of a character, which JSON can only escape
        made = json.dumps(row)
    except ValueError:
        return _encode_row(row | {"payload": json.dumps(row["payload"])})
    return made[1:-1]
