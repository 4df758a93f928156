"""The outcomes of publications, and what waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple, TypeAlias

from ps2stream.dispatcher.gateway import AcceptedBatch, DispatcherGateway
from ps2stream.service.objects import RowRefusal
from ps2stream.service.service_loop import service_loop
from ps2stream.v1 import object_pb2

Level: TypeAlias = object_pb2.PublishLevel.ValueType


class RetryAdvice(NamedTuple):
    """The reason why a batch was not accepted now. It is no exception, whose frames would hold the
    message until the next garbage collection."""

    problem: str
    retry_after_ms: int


class PublishOutcome(NamedTuple):
    """The outcome of a batch. `at` is None where nothing of it was accepted; `error` is the reason
    when a full service or a quota refused it."""

    level: Level
    at: AcceptedBatch | None = None
    accepted: int = 0
    refused: Sequence[RowRefusal] = ()
    error: RetryAdvice | None = None


class BegunPublication(NamedTuple):
    """A publication under way. `finish` waits for `routing` and returns the outcome.
    `joins_answers`: its answer may be written together with others. `is_large`: many rows were
    refused."""

    routing: Future[AcceptedBatch]
    finish: Callable[[], Awaitable[PublishOutcome]]
    joins_answers: bool
    is_large: bool


async def await_routing(
    gateway: DispatcherGateway, routing: Future[AcceptedBatch], wait_s: float
) -> AcceptedBatch:
    """Returns the place where the batch was accepted. Raises ResourceExhausted, with nothing
    accepted, when the batch still waits after `wait_s` seconds."""
    if routing.done():
        return routing.result()
    loop = service_loop()
    try:
        async with asyncio.timeout(wait_s):
            return await loop.follow(routing)
    except TimeoutError:
        await asyncio.to_thread(gateway.withdraw, routing, wait_s)
        return await loop.follow(routing)


async def answer_later(
    finish: Callable[[], Awaitable[PublishOutcome]], answer: Callable[[PublishOutcome], bytes]
) -> bytes:
    """Returns the answer to what `finish` waits for."""
    return answer(await finish())


def make_raiser(error: Exception) -> Callable[[], bytes]:
    """Returns a function that raises the error; the error's frames, which hold the message, are
    released."""
    error.__traceback__ = error.__context__ = None

    def raise_error() -> bytes:
        raise error

    return raise_error
