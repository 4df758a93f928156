"""Conversion of errors to gRPC status codes with google.rpc details; nothing leaves as UNKNOWN."""

from __future__ import annotations

import logging

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from ps2stream.errors import (
    AlreadyExists,
    Cancelled,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Ps2StreamError,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from ps2stream.limits import VIOLATIONS

log = logging.getLogger("ps2stream.service")

CODES: dict[type[Ps2StreamError], grpc.StatusCode] = {
    InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    NotFound: grpc.StatusCode.NOT_FOUND,
    ResourceExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    FailedPrecondition: grpc.StatusCode.FAILED_PRECONDITION,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
    Cancelled: grpc.StatusCode.CANCELLED,
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
}
MAX_DESCRIPTION = 256
_ROOM = 5 << 10
"""The bytes for details: a status travels in HTTP/2 trailers, of which clients take up to 8 KiB."""


class UnknownMethod(Exception):
    """A call of a method that the service does not have."""


def to_status(error: Exception) -> status_pb2.Status:
    """Returns the status that a client gets for `error`; INTERNAL for what is not an error of
    ours."""
    if isinstance(error, TimeoutError):
        return _build_status(
            grpc.StatusCode.DEADLINE_EXCEEDED, str(error) or "the deadline has passed"
        )
    if isinstance(error, UnknownMethod):
        return _build_status(grpc.StatusCode.UNIMPLEMENTED, "there is no such method")
    for kind, code in CODES.items():
        if isinstance(error, kind):
            return _build_status(code, str(error), *_build_details(error))
    return _build_status(
        grpc.StatusCode.INTERNAL, "internal error; the service's log has the details"
    )


def find_status(error: Exception) -> grpc.Status:
    """Returns the status that a call ends with for `error`, and logs a bug."""
    if not isinstance(error, Ps2StreamError | TimeoutError | UnknownMethod):
        log.error("a call failed", exc_info=error)
    return rpc_status.to_status(to_status(error))  # type: ignore[no-any-return]


def _build_status(code: grpc.StatusCode, message: str, *details: Message) -> status_pb2.Status:
    if len(message) > 1024:
        message = message[:1023] + "…"
    packed = []
    for detail in details:
        packed.append(AnyMessage())
        packed[-1].Pack(detail)
    return status_pb2.Status(code=code.value[0], message=message, details=packed)


def _build_details(error: Exception) -> list[Message]:
    if isinstance(error, InvalidArgument):
        found = error_details_pb2.BadRequest()
        size = 0
        for field, description in error.violations[:VIOLATIONS]:
            if len(description) > MAX_DESCRIPTION:
                description = description[: MAX_DESCRIPTION - 1] + "…"
            size += len(field.encode()) + len(description.encode())
            if size > _ROOM:
                break
            found.field_violations.add(field=field, description=description)
        return [found]
    if isinstance(error, ResourceExhausted):
        delay = Duration()
        delay.FromMilliseconds(error.retry_after_ms)
        return [error_details_pb2.RetryInfo(retry_delay=delay)]
    if isinstance(error, Unavailable) and not error.may_be_done:
        return [error_details_pb2.RetryInfo()]
    return []
