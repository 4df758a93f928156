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

from ps2stream.errors import InvalidArgument, Ps2StreamError, ResourceExhausted, Violation
from ps2stream.service.half_open import HalfOpenCalls
from ps2stream.service.lanes import CallLane, CallLanes
from ps2stream.service.open_calls import OpenCall
from ps2stream.service.status import HeldBack
from ps2stream.service.timers import TaskTimers

P = ParamSpec("P")
T = TypeVar("T")
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
        behaviour: Callable[[Any, grpc.ServicerContext], Any],
        read: Callable[[bytes], Any] | None,
        write: Callable[[Any], bytes] | None,
    ) -> UnaryHandler:
        """Returns a handler that answers on a thread of `lane`; `read` and `write` parse and
        serialize messages."""

        def answer(data: bytes, call: OpenCall, context: grpc.ServicerContext) -> None:
            answer_with(call, context, lambda: behaviour(_parse_message(data, read), context))

        def answer_with(
            call: OpenCall, context: grpc.ServicerContext, find: Callable[[], Any]
        ) -> None:
            try:
                found = find()
            except Exception as error:  # noqa: BLE001
                # What `abort` raises says nothing: the status is in the context.
                call.end(error if context.code() is None else None)  # type: ignore[attr-defined]
                return
            if isinstance(found, HeldBack):
                self._timers.after(found.seconds, partial(answer_with, call, context, found.finish))
                return
            call.answer(found if write is None else write(found))

        def take(call: OpenCall, context: grpc.ServicerContext, data: bytes | None) -> None:
            if not self._half_open.drop(call):
                return  # it has been ended
            if data is None:
                if context.is_active():
                    problem = Violation("request", "expected one message, got none")
                    self._refuse_call(call, InvalidArgument([problem]))
                return
            try:
                lane.check()
            except ResourceExhausted as error:
                self._refuse_call(call, error)
                return
            lane.submit(answer, data, call, context)

        def handle(_: Any, context: grpc.ServicerContext, send: Callable[[None], None]) -> None:
            call, peer = OpenCall(context, send, greet=False), context.peer()
            try:
                lane.shares.enter(peer)
            except ResourceExhausted as error:
                self._refuse_call(call, error)
                return
            leave = partial(self._leave_lane, lane, call, peer)
            if not context.add_callback(leave):
                leave()
                return
            limit = f"{self._half_open.limit_s:g} s, the limit (half_open_s)"
            late = TimeoutError(f"no message came within {limit}")
            self._half_open.add(call, partial(call.end, late))
            call.read(partial(take, call, context))

        handle.experimental_non_blocking = True  # type: ignore[attr-defined]
        handle.experimental_thread_pool = self.executor  # type: ignore[attr-defined]
        return handle

    def _leave_lane(self, lane: CallLane, call: OpenCall, peer: str) -> None:
        self._half_open.drop(call)
        lane.shares.leave(peer)

    def _refuse_call(self, call: OpenCall, error: Ps2StreamError) -> None:
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


def _parse_message(data: bytes, read: Callable[[bytes], Any] | None) -> Any:
    """Returns the message. Raises InvalidArgument."""
    try:
        return data if read is None else read(data)
    except Exception:  # noqa: BLE001
        raise InvalidArgument([Violation("request", "is not the method's message")]) from None
