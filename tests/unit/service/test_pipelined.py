"""The answers of a stream: in order, and together where they are ready and may be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, cast

import pytest

from ps2stream.errors import NotFound
from ps2stream.service.calls import (
    BegunAnswer,
    JoinedAnswer,
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
