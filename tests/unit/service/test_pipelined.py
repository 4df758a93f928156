"""The answers of a stream: in order, and together where they are ready and may be."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, cast

import pytest

from ps2stream.errors import NotFound
from ps2stream.service.calls import (
    JOINED_BYTES,
    PIPELINE,
    BegunAnswer,
    JoinedAnswer,
    LargeAnswer,
    LaterAnswer,
    QuickBehaviour,
    pipelined,
)
from ps2stream.service.lanes import CallerThread
from ps2stream.service.open_calls import OpenCall
from ps2stream.service.service_loop import service_loop


class Call:
    """A call whose client has sent `messages`; with the last of them, what `release` names is
    done."""

    def __init__(self, messages: Sequence[bytes], outcomes: Sequence[Future[bytes]]) -> None:
        self._messages = list(messages)
        self._outcomes = outcomes
        self.written: list[bytes] = []

    async def read(self) -> bytes | None:
        if self._messages:
            return self._messages.pop(0)
        for outcome in self._outcomes:
            if not outcome.done():
                outcome.set_result(b"late")
        return None

    async def write(self, data: bytes) -> None:
        self.written.append(data)
        await asyncio.sleep(0)


def join(answers: Sequence[bytes]) -> bytes:
    return b"+".join(answers)


def serve(messages: Sequence[bytes], most: int = 64) -> list[bytes]:
    """Returns what is written to a client whose messages are `+` and `-`, for answers that may and
    may not be joined, or `!` for an error, and that are all ready once the last is read."""
    outcomes: list[Future[bytes]] = []

    def begin(data: bytes, _: OpenCall) -> BegunAnswer:
        outcome: Future[bytes] = Future()
        outcomes.append(outcome)

        async def finish() -> bytes:
            await service_loop().follow(outcome)
            if data == b"!":
                raise NotFound("x")
            return data

        later: LaterAnswer = finish
        return later if data == b"-" else JoinedAnswer(later, outcome.done, join)

    call = Call(messages, outcomes)

    async def run() -> None:
        behaviour = QuickBehaviour(begin, begin)
        await pipelined(cast(Any, call), CallerThread(), behaviour, most)

    try:
        service_loop().run(run())
    except NotFound:
        call.written.append(b"error")
    return call.written


@pytest.mark.parametrize(
    ("messages", "written"),
    [
        ("+++", ["+++++"]),  # three and two signs between them
        ("---", ["-", "-", "-"]),
        ("+-+", ["+", "-", "+"]),
        ("-++", ["-", "+++"]),
        ("++-++", ["+++", "-", "+++"]),
        ("", []),
        ("++!+", ["+++", "error"]),
        ("!", ["error"]),
        ("-!", ["-", "error"]),
    ],
)
def test_what_is_ready_and_may_be_joined_is_written_at_once(
    messages: str, written: list[str]
) -> None:
    assert serve([m.encode() for m in messages]) == [w.encode() for w in written]


def test_a_message_does_not_grow_without_bound() -> None:
    half, whole = b"+" * (JOINED_BYTES // 2), b"+" * (2 * JOINED_BYTES)
    written = serve([half, half, half, whole, b"+", half])
    assert [len(each) for each in written] == [
        JOINED_BYTES + 1, len(half), len(whole), len(half) + 2
    ]  # fmt: skip


def test_an_error_behind_joined_answers_is_freed_at_once() -> None:
    class Failure(NotFound):
        pass

    watched: list[weakref.ref[Failure]] = []

    def begin(data: bytes, _: OpenCall) -> BegunAnswer:
        async def finish() -> bytes:
            if data == b"!":
                error = Failure("x")
                watched.append(weakref.ref(error))
                try:
                    raise error
                finally:
                    del error
            return data

        return JoinedAnswer(finish, lambda: True, join)

    async def run() -> None:
        call = Call([b"+", b"+", b"!"], [])
        with contextlib.suppress(Failure):
            await pipelined(cast(Any, call), CallerThread(), QuickBehaviour(begin, begin))
        assert call.written == [b"+++"]

    gc.collect()
    gc.disable()
    try:
        service_loop().run(run())
        assert [each() for each in watched] == [None]
    finally:
        gc.enable()


def test_few_answers_that_are_large_are_under_way() -> None:
    begun: list[bytes] = []

    async def run() -> None:
        go_on = asyncio.Event()

        def begin(data: bytes, _: OpenCall) -> BegunAnswer:
            begun.append(data)

            async def finish() -> bytes:
                await go_on.wait()
                return data

            return LargeAnswer(finish) if data == b"L" else JoinedAnswer(finish, go_on.is_set, join)

        call = Call([b"L"] * 20 + [b"+"] * 100, [])
        behaviour = QuickBehaviour(begin, begin)
        serving = asyncio.create_task(pipelined(cast(Any, call), CallerThread(), behaviour, 64))
        for _ in range(500):
            await asyncio.sleep(0)
        assert len(begun) <= PIPELINE + 2  # one is waited for, and one waits for room
        go_on.set()
        await serving
        assert b"+".join(call.written) == b"+".join([b"L"] * 20 + [b"+"] * 100)

    service_loop().run(run())
    assert len(begun) == 120
