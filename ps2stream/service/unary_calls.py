"""Unary calls that get a thread once their message is there.

gRPC's own handler of a unary call takes a thread first and then waits for the message, so that a
few bytes hold a thread for as long as the connection lasts. Here a call waits for its message
without a thread, for HALF_OPEN_S, and a peer has a share of the calls in progress.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

import grpc

from ps2stream.errors import InvalidArgument, ResourceExhausted, Violation, invalid
from ps2stream.service.half_open import HalfOpenCalls
from ps2stream.service.lanes import CallLane, CallLanes
from ps2stream.service.open_calls import OpenCall
from ps2stream.service.status import HeldBack
from ps2stream.service.timers import TaskTimers

P = ParamSpec("P")
T = TypeVar("T")
Behaviour = Callable[[Any, grpc.ServicerContext], Any]
UnaryHandler = Callable[[Any, grpc.ServicerContext, Callable[[None], None]], None]


class InlineExecutor(ThreadPoolExecutor):
    """An executor that runs tasks at once, on gRPC's thread. They must not block."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001
            future.set_exception(error)
        return future


class UnaryCalls:
    """A maker of handlers that gRPC takes for those of non-blocking streams."""

    def __init__(self, lanes: CallLanes, half_open: HalfOpenCalls, timers: TaskTimers) -> None:
        self._lanes = lanes
        self._half_open = half_open
        self._timers = timers
        self.executor = InlineExecutor(1)

    def handler(
        self,
        lane: CallLane,
        choose: Callable[[grpc.ServicerContext], Behaviour],
        read: Callable[[bytes], Any] | None,
        write: Callable[[Any], bytes] | None,
    ) -> UnaryHandler:
        """Returns a handler that answers on a thread of `lane` by the behaviour that `choose`
        returns, which must not block, and which raises where the caller is refused; `read` and
        `write` parse and serialize messages."""

        def answer(
            behaviour: Behaviour, data: bytes, call: OpenCall, context: grpc.ServicerContext,
            peer: str,
        ) -> None:  # fmt: skip
            find = partial(_answer_message, behaviour, data, read, context)
            answer_with(call, context, peer, find)

        def answer_with(
            call: OpenCall, context: grpc.ServicerContext, peer: str, find: Callable[[], Any]
        ) -> None:
            try:
                found = find()
                if isinstance(found, HeldBack):
                    again = partial(answer_with, call, context, peer, found.finish)
                    self._timers.after(found.seconds, again)
                    return
                call.answer(found if write is None else write(found))
            except Exception as error:  # noqa: BLE001
                # What `abort` raises says nothing: the status is in the context.
                call.end(error if context.code() is None else None)  # type: ignore[attr-defined]
            lane.shares.leave(peer)

        def take(
            behaviour: Behaviour, call: OpenCall, context: grpc.ServicerContext, peer: str,
            data: bytes | None,
        ) -> None:  # fmt: skip
            waits = self._half_open.drop(call)  # otherwise it has been ended
            if waits and data is not None:
                try:
                    lane.check()
                except ResourceExhausted as error:
                    self._refuse_call(call, error)
                else:
                    lane.submit(answer, behaviour, data, call, context, peer)
                    return
            elif waits and context.is_active():
                problem = Violation("request", "expected one message, got none")
                self._refuse_call(call, InvalidArgument([problem]))
            lane.shares.leave(peer)

        def handle(_: Any, context: grpc.ServicerContext, send: Callable[[None], None]) -> None:
            call, peer = OpenCall(context, send, greet=False), context.peer()
            try:
                behaviour = choose(context)
                lane.check()
                lane.shares.enter(peer)
            except Exception as error:  # noqa: BLE001
                self._refuse_call(call, error)
                return
            limit = f"{self._half_open.limit_s:g} s, the limit (half_open_s)"
            late = TimeoutError(f"no message arrived within {limit}")
            self._half_open.add(call, partial(call.end, late))
            then = partial(take, behaviour, call, context, peer)
            if not call.read(then):
                then(None)

        handle.experimental_non_blocking = True  # type: ignore[attr-defined]
        handle.experimental_thread_pool = self.executor  # type: ignore[attr-defined]
        return handle

    def _refuse_call(self, call: OpenCall, error: Exception) -> None:
        """Ends the call with `error` soon, on the threads that refuse."""

        def end() -> None:
            if isinstance(error, ResourceExhausted):
                self._lanes.hold_back()
            call.end(error)

        try:
            self._lanes.refusals.check()
        except ResourceExhausted:
            call.cancel()
            return
        self._lanes.refusals.submit(end)


def _answer_message(
    behaviour: Behaviour,
    data: bytes,
    read: Callable[[bytes], Any] | None,
    context: grpc.ServicerContext,
) -> Any:
    return behaviour(_parse_message(data, read), context)


def _parse_message(data: bytes, read: Callable[[bytes], Any] | None) -> Any:
    """Returns the message. Raises InvalidArgument."""
    try:
        return data if read is None else read(data)
    except Exception:  # noqa: BLE001
        raise invalid("request", "cannot be read as the message of this method") from None
