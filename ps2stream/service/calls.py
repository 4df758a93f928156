"""Helpers that the handlers share: parsing, deadlines and pipelined streams."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from ps2stream.errors import InvalidArgument, Unavailable, invalid
from ps2stream.limits import BATCH_BYTES, BATCH_ROWS, ID_BYTES, SESSION_BYTES
from ps2stream.protocol.wire_kernels import BAD, count_entries
from ps2stream.service.open_calls import OpenCall
from ps2stream.service.service_loop import service_loop

M = TypeVar("M", bound=Message)
T = TypeVar("T")
ANSWER_S = 60.0
"""How long a call without a deadline waits for its answer."""
PIPELINE = 8
"""The number of batches of one stream that may wait for their answers."""
JOINED_BYTES = 1 << 20
"""The size of a message up to which answers are joined: many clients take no more than 4 MiB."""


LaterAnswer: TypeAlias = Callable[[], Awaitable[bytes]]
"""Waits for the answer to what has begun, without a thread."""


class JoinedAnswer(NamedTuple):
    """An answer to wait for by `finish`, which may be written in one message with earlier ones.
    `is_ready` says that it need not be waited for; `join` makes one message of several answers."""

    finish: LaterAnswer
    is_ready: Callable[[], bool]
    join: Callable[[Sequence[bytes]], bytes]


class LargeAnswer(NamedTuple):
    """An answer to wait for by `finish` that takes much memory meanwhile; a stream may have
    PIPELINE of them under way."""

    finish: LaterAnswer


class HeldBack(NamedTuple):
    """An answer that is to wait for `seconds`, without a thread; `finish` then returns the answer,
    or raises."""

    seconds: float
    finish: Callable[[], bytes]


class QuickBehaviour(NamedTuple):
    """The handling of a message that may be quick: `begin_at_once` runs on the loop, and returns
    None for a message that it left to `begin`, on a thread."""

    begin: Callable[[bytes, OpenCall], BegunAnswer]
    begin_at_once: Callable[[bytes, OpenCall], BegunAnswer | None]


class JoinedBehaviour(NamedTuple):
    """The handling of messages that each may be several requests, which `split` returns. It may
    raise what ends the stream. `begin_together` runs on the loop, and removes the requests that it
    begins, the first ones; if it begins none, they are for `one`."""

    one: QuickBehaviour
    split: Callable[[bytes], deque[bytes]]
    begin_together: Callable[[deque[bytes], OpenCall], Sequence[BegunAnswer]]


BegunAnswer: TypeAlias = bytes | HeldBack | LaterAnswer | JoinedAnswer | LargeAnswer
UnaryBehaviour: TypeAlias = Callable[[bytes, OpenCall], BegunAnswer] | QuickBehaviour
"""Answers the message of a call, on a thread of the call's lane."""
StreamBehaviour: TypeAlias = Callable[[OpenCall], Awaitable[None]]
"""Reads and writes the messages of a call, on the service's loop."""


def parse(kind: type[M], data: bytes, limit: int, name: str) -> M:
    """Parses the message in `data`. Raises InvalidArgument when it is none, or larger than `limit`
    bytes (called `name` in the error)."""
    _check_size(data, limit, name)
    try:
        return kind.FromString(data)
    except (DecodeError, UnicodeDecodeError):
        raise _malformed_message(kind) from None


class RowField(NamedTuple):
    """The place of a request's rows: the number of the repeated field, that of the message around
    it (0 for the request itself), and the path that an error names."""

    outer: int
    inner: int
    path: str


OBJECT_ROWS = RowField(1, 1, "batch.objects")
QUERY_ROWS = RowField(1, 1, "batch.queries")
ID_ROWS = RowField(0, 1, "ids")


def parse_batch(kind: type[M], data: bytes, rows: RowField) -> M:
    """Parses a message that carries a batch, after `check_batch`."""
    check_batch(kind, data, rows)
    return parse(kind, data, BATCH_BYTES, "batch_bytes")


def check_batch(kind: type[Message], data: bytes, rows: RowField) -> int:
    """Returns how many rows the batch has as messages, counted before anything is built for them.
    Raises InvalidArgument for a batch of more than BATCH_BYTES bytes or BATCH_ROWS rows."""
    _check_size(data, BATCH_BYTES, "batch_bytes")
    column = np.frombuffer(data, np.uint8)
    count = count_entries(column, rows.outer, rows.inner, BATCH_ROWS)
    if count == BAD:
        raise _malformed_message(kind)
    if count > BATCH_ROWS:
        raise invalid(rows.path, rows_problem())
    return int(count)


def rows_problem() -> str:
    """Returns the error text for a batch of too many rows."""
    return f"contains more rows than the limit batch_rows {BATCH_ROWS}"


def _check_size(data: bytes, limit: int, name: str) -> None:
    if len(data) > limit:
        problem = f"{len(data)} bytes are over the limit {name} {limit}"
        raise invalid("request", problem)


def _malformed_message(kind: type[Message]) -> InvalidArgument:
    problem = f"is not a {kind.DESCRIPTOR.full_name}"
    return invalid("request", problem)


def wait(future: Future[T], call: OpenCall) -> T:
    """Returns the future's result within the call's deadline. Raises TimeoutError at the deadline,
    and Unavailable when there is no deadline and no result within ANSWER_S."""
    left = call.time_remaining()
    try:
        return future.result(ANSWER_S if left is None else min(left, ANSWER_S))
    except TimeoutError:
        raise _no_answer(left) from None


def _no_answer(left: float | None) -> Exception:
    """Returns the error for a call that had so many seconds left when it began to wait."""
    if left is not None and left <= ANSWER_S:
        return TimeoutError("the deadline has passed; the update may still be done")
    return Unavailable(f"no answer within {ANSWER_S:g} s")


def name_problem(name: str, kind: Literal["id", "session"]) -> str:
    """Returns the error text for a bad name of a query or session, empty for a good one."""
    size = len(name.encode())
    limit = ID_BYTES if kind == "id" else SESSION_BYTES
    if not 0 < size <= limit:
        return f"expected 1 to {limit} bytes, got {size} (limit {kind}_bytes)"
    return "contains a NUL character" if "\0" in name else ""


def session_not_made() -> Unavailable:
    """Returns the error for a session that got no number."""
    return Unavailable("the ledger could not be written; the session was not created")


def check_deadline(call: OpenCall) -> None:
    """Raises TimeoutError when the caller no longer waits for the answer."""
    left = call.time_remaining()
    if left is not None and left <= 0:
        raise TimeoutError("the deadline has passed; nothing was done")


async def settle(future: Future[T], call: OpenCall) -> T:
    """Returns the future's result as `wait` does, without a thread."""
    left = call.time_remaining()
    try:
        async with asyncio.timeout(ANSWER_S if left is None else min(left, ANSWER_S)):
            return await service_loop().follow(future)
    except TimeoutError:
        raise _no_answer(left) from None


async def begin_message(
    threads: Executor, behaviour: UnaryBehaviour, data: bytes, call: OpenCall
) -> BegunAnswer:
    """Begins to handle a message: at once if it is a quick one, and otherwise on a thread."""
    if isinstance(behaviour, QuickBehaviour):
        if (begun := behaviour.begin_at_once(data, call)) is not None:
            return begun
        behaviour = behaviour.begin
    beginning = service_loop().run_on(threads, behaviour, data, call)
    del data  # the answer may take long
    return await beginning


async def complete(begun: BegunAnswer) -> bytes:
    """Returns the answer that a behaviour has begun."""
    match begun:
        case bytes():
            return begun
        case JoinedAnswer() | LargeAnswer():
            return await begun.finish()
        case HeldBack():
            await asyncio.sleep(begun.seconds)
            return begun.finish()
    return await begun()


class AnswerQueue:
    """What the messages of a stream have begun, in order, at most `most`, of which PIPELINE may be
    large, and then the end or an error."""

    def __init__(self, most: int) -> None:
        self._begun: deque[BegunAnswer | Exception | None] = deque()
        self._room = asyncio.Semaphore(most)
        self._large = max(most // PIPELINE, 1)  # room for a large one
        self._has_some = asyncio.Event()

    async def put(self, begun: BegunAnswer | Exception | None) -> None:
        """Adds what comes next, once there is room."""
        for _ in range(self._count_room(begun)):
            await self._room.acquire()
        self._begun.append(begun)
        self._has_some.set()

    async def get(self) -> BegunAnswer | Exception | None:
        """Removes and returns what comes next."""
        while not self._begun:
            self._has_some.clear()
            await self._has_some.wait()
        return self._take_next()

    def get_ready(self) -> Iterator[JoinedAnswer]:
        """Removes and yields what comes next for as long as it may be written with what came
        before and need not be waited for."""
        while (
            self._begun and isinstance(begun := self._begun[0], JoinedAnswer) and begun.is_ready()
        ):
            self._take_next()
            yield begun

    def _take_next(self) -> BegunAnswer | Exception | None:
        begun = self._begun.popleft()
        for _ in range(self._count_room(begun)):
            self._room.release()
        return begun

    def _count_room(self, begun: BegunAnswer | Exception | None) -> int:
        return self._large if isinstance(begun, LargeAnswer) else 1


async def pipelined(
    call: OpenCall,
    threads: Executor,
    behaviour: UnaryBehaviour | JoinedBehaviour,
    most: int = PIPELINE,
) -> None:
    """Answers the messages of a call in order, with up to `most` of them under way.

    `behaviour` begins a message. While an answer is held back, nothing more is read. An error ends
    the stream after the answers before it.
    """
    pending = AnswerQueue(most)

    async def begin_next() -> bool:
        request = await call.read()
        if request is None:
            return False
        if not isinstance(behaviour, JoinedBehaviour):
            beginning = begin_message(threads, behaviour, request, call)
            del request  # nothing may hold a message until the next one comes
            await put_begun(await beginning)
            return True
        parts = behaviour.split(request)
        del request
        while parts and (together := behaviour.begin_together(parts, call)):
            for begun in together:
                await pending.put(begun)
        while parts:  # if one of them is bad, it would be found again with every try
            await put_begun(await begin_message(threads, behaviour.one, parts.popleft(), call))
        return True

    async def put_begun(begun: BegunAnswer) -> None:
        await pending.put(await complete(begun) if isinstance(begun, HeldBack) else begun)

    async def read_ahead() -> None:
        try:
            while await begin_next():
                pass
            await pending.put(None)
        except Exception as error:  # noqa: BLE001
            await pending.put(error)

    reading = asyncio.create_task(read_ahead())
    try:
        while (item := await pending.get()) is not None:
            if isinstance(item, Exception):
                raise item
            answers, error = [await complete(item)], None
            if isinstance(item, JoinedAnswer):
                answers, error = await _join_ready(answers[0], item, pending)
            for answer in answers:
                await call.write(answer)
            if error is not None:
                raise error
    finally:
        reading.cancel()
        await asyncio.wait((reading,))  # a thread may still handle a message
        item = error = None  # an error has frames that hold a message, and this one


async def _join_ready(
    answer: bytes, first: JoinedAnswer, pending: AnswerQueue
) -> tuple[list[bytes], Exception | None]:
    """Returns as few messages as may be of an answer and those behind it that are ready, and the
    error that ended them."""
    parts, size, error = [[answer]], len(answer), None
    try:
        for begun in pending.get_ready():
            try:
                answer = await begun.finish()
            except Exception as caught:  # noqa: BLE001
                error = caught
                break
            size += len(answer)
            if size > JOINED_BYTES:
                parts.append([])
                size = len(answer)
            parts[-1].append(answer)
        return [first.join(part) if len(part) > 1 else part[0] for part in parts], error
    finally:
        error = None  # it has a frame that holds this one
