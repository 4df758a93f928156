"""The subscription of the synchronous client, and the reading of a stream's answers."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterator
from itertools import count
from types import TracebackType
from typing import Any, Self

import grpc

from ps2stream.client import answers
from ps2stream.client.matches import Match, Matches, MatchReceiver
from ps2stream.errors import Ps2StreamError, Unavailable

log = logging.getLogger("ps2stream.client")


class Subscription:
    """The matches of one session as they come. Iterate over the subscription or over `batches()`;
    close it from any thread to end the iteration. A batch counts as taken when the next one is
    asked for. What was not taken comes again on the session's next stream."""

    def __init__(self, stub: Any, receiver: MatchReceiver, reconnect: bool, timeout: float) -> None:
        self._stub = stub
        self._receiver = receiver
        self._reconnect = reconnect
        self._timeout = timeout
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._shown = 0  # the last pair handed out, not yet known to be taken
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._open_stream()

    @property
    def cursor(self) -> bytes:
        """The place up to which matches were handed out, including the match or batch in hand.
        Store it in the same transaction as the results of those matches, before you ask for the
        next one, and pass it to the next subscription: then each match counts once, whatever
        fails."""
        return self._receiver.cursor(self._shown)

    @property
    def missed(self) -> int:
        """The number of pairs that the service dropped because nobody took them in time."""
        return self._receiver.missed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._shown = 0  # its handling may have failed
        self.close()

    def close(self) -> None:
        """Acknowledges what was handed out and ends the stream."""
        if self._closed.is_set():
            return
        self._closed.set()
        with self._lock:
            self._receiver.took(self._shown)
            if (last := self._receiver.credit(flush=True)) is not None:
                self._outbox.put(last)
            self._outbox.put(None)
            call = self._call
        limit = threading.Timer(0.5, call.cancel)
        limit.daemon = True
        limit.start()
        with self._reading:  # a thread that reads now reads to the end
            try:
                for _ in call:  # what is still under way comes again on the next stream
                    pass
            except grpc.RpcError:
                log.debug("the stream ended before its last acknowledgement")
            except ValueError:  # Ctrl-C interrupted a read, which leaves it under way
                ended = threading.Event()
                if call.add_callback(ended.set):
                    ended.wait()
        limit.cancel()

    def __iter__(self) -> Iterator[Match]:
        for batch in self._read_batches():
            for number, match in enumerate(batch, batch.first):
                self._shown = number
                yield match

    def batches(self, *, manual: bool = False) -> Iterator[Matches]:
        """Yields whole batches as columns, also those that hold only a gap. With `manual`, a batch
        counts as taken only when `took` is called with its last number, from any thread and however
        many batches later."""
        for batch in self._read_batches(manual):
            self._shown = 0 if manual else batch.last
            yield batch

    def took(self, number: int) -> None:
        """Acknowledges everything up to this pair now."""
        with self._lock:
            self._receiver.took(number)
            self._outbox.put(self._receiver.acknowledgement())

    def cursor_at(self, number: int) -> bytes:
        """Returns the `cursor` as it is once everything up to this pair was taken."""
        return self._receiver.cursor(number)

    def _read_batches(self, manual: bool = False) -> Iterator[Matches]:
        while (data := self._read_message()) is not None:
            found = self._receiver.on(data)
            if found is not None:
                if found.gap is not None:
                    log.warning("%s", found.gap)
                if manual:
                    self._receiver.handed(found.last)
                    yield found
                else:
                    yield found
                    self._receiver.took(found.last)
                    self._shown = 0
            if (credit := self._receiver.credit()) is not None:
                self._outbox.put(credit)

    def _read_message(self) -> bytes | None:
        """Returns the next message, or None when the subscription has been closed."""
        while not self._closed.is_set():
            try:
                with self._reading:
                    return next_answer(self._call)
            except (Ps2StreamError, TimeoutError) as error:
                self._outbox.put(None)
                if self._closed.is_set():
                    break
                if not (self._reconnect and isinstance(error, Unavailable)):
                    raise
                self._reopen_stream(error)
        return None

    def _reopen_stream(self, error: Exception) -> None:
        """Opens the stream again; raises the error when that fails for `timeout` seconds."""
        log.info("the stream broke, and is opened again: %s", error)
        deadline = time.monotonic() + self._timeout
        for attempt in count():
            pause = answers.pause_before(error, attempt, True)
            if pause is None or time.monotonic() + pause >= deadline:
                raise error
            if self._closed.wait(pause):
                return
            try:
                self._open_stream()
                return
            except Unavailable as again:
                error = again

    def _open_stream(self) -> None:
        with self._lock:
            self._outbox.put(None)  # ends the thread that sent for the last stream
            self._outbox = queue.SimpleQueue()
            self._outbox.put(self._receiver.start())
            self._call = self._stub(iter(self._outbox.get, None))
        try:
            self._receiver.on(next_answer(self._call))
        except Exception:
            self._outbox.put(None)
            raise


def next_answer(call: Any) -> bytes:
    """Returns the next answer of a stream. Raises the stream's status, or Unavailable at its
    end."""
    try:
        return bytes(next(call))
    except StopIteration:
        raise Unavailable("the service ended the stream") from None
    except grpc.RpcError as error:
        raise rpc_error(error) from None


def rpc_error(error: Any) -> Exception:
    """Returns the exception for a call that failed."""
    trailing = {m.key: m.value for m in error.trailing_metadata() or ()}
    details = trailing.get(answers.DETAILS_KEY)
    return answers.error_of(
        error.code().name, error.details() or "", details if isinstance(details, bytes) else None
    )
