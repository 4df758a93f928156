"""The errors of calls that failed, and the pause before another attempt."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from ps2stream.client.field_names import name_field
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
    Violation,
    invalid,
)

DETAILS_KEY = "grpc-status-details-bin"
_CONNECTING = re.compile(
    r"failed to connect to all addresses.*\b(?:ipv4|ipv6|unix):(?P<where>\S+?): (?P<why>.+)$",
    re.DOTALL,
)
_NAMING = re.compile(r"DNS resolution failed for (?P<where>[^:\s]+(?::\d+)?)")
NO_ANSWER = "Deadline Exceeded"
"""What gRPC says, and no service, of a call whose deadline has passed."""
_WRITE_FAILED = "Internal error from Core"
"""What grpc.aio says in place of a stream's status where a request was written just as the service
ended the stream (grpc/grpc#36066)."""
_FAILED = "Failed to connect to remote host: "


def rpc_error(error: Any) -> Exception:
    """Returns the exception for a grpc.RpcError."""
    trailing: dict[str, Any] = dict(error.trailing_metadata() or ())
    details = trailing.get(DETAILS_KEY)
    return error_of(
        error.code().name, error.details() or "", details if isinstance(details, bytes) else None
    )


def error_of(code: str, message: str, details: bytes | None) -> Exception:
    """Returns the exception for a gRPC status: `code` is its name, `details` the encoded
    google.rpc.Status."""
    status = status_pb2.Status()
    if details:
        try:
            status = status_pb2.Status.FromString(details)
        except DecodeError:
            status = status_pb2.Status(message=message)
    match code:
        case "INVALID_ARGUMENT":
            bad = error_details_pb2.BadRequest()
            for detail in status.details:
                detail.Unpack(bad)
            found = [Violation(name_field(v.field), v.description) for v in bad.field_violations]
            return InvalidArgument(found or [Violation("request", message)])
        case "RESOURCE_EXHAUSTED":
            retry = error_details_pb2.RetryInfo()
            if any(detail.Unpack(retry) for detail in status.details):
                return ResourceExhausted(message, retry.retry_delay.ToMilliseconds())
            if "larger than max" in message:  # gRPC's own refusal, which no retry can help
                return invalid("request", message)
            return ResourceExhausted(message, 0)
        case "DEADLINE_EXCEEDED":
            return TimeoutError(NO_ANSWER if NO_ANSWER in message else message)
        case "UNAVAILABLE":
            failure = Unavailable(_describe_connection_failure(message) or message)
            # A service that has done nothing says when to try again.
            retry = error_details_pb2.RetryInfo()
            refused = any(detail.Unpack(retry) for detail in status.details)
            failure.may_be_done = str(failure) == message and not refused
            return failure
        case "INTERNAL" if message == _WRITE_FAILED:
            return Unavailable("the stream ended while a request was sent")
    kinds: dict[str, type[Ps2StreamError]] = {
        "ALREADY_EXISTS": AlreadyExists,
        "CANCELLED": Cancelled,
        "NOT_FOUND": NotFound,
        "FAILED_PRECONDITION": FailedPrecondition,
        "UNAUTHENTICATED": Unauthenticated,
        "PERMISSION_DENIED": PermissionDenied,
    }
    kind = kinds.get(code)
    return kind(message) if kind else Ps2StreamError(f"{code}: {message}")


def _describe_connection_failure(message: str) -> str:
    """Rewords gRPC's text about a connection that could not be made; returns "" for any other
    text."""
    if found := _CONNECTING.search(message):
        where, why = unquote(found["where"]), found["why"].removeprefix(_FAILED)
        hint = "; is `ps2stream serve` running there?" if "refused" in why.lower() else ""
        return f"cannot connect to {where}: {why}{hint}"
    if found := _NAMING.match(message):
        return f"cannot connect to {found['where']}: the name of the host is not known"
    return ""


AWAY_S = 0.5
"""The longest pause while the service is away: an actor is back within two seconds."""


def pause_before(error: Exception, attempt: int, repeatable: bool) -> float | None:
    """Returns the seconds to wait before the next attempt, or None when another attempt makes no
    sense.

    A full service has accepted nothing, so any call may be repeated; so may one that reached none.
    After another UNAVAILABLE only a call that is `repeatable` without doing its work twice may be.
    """
    backoff = 0.05 * 2.0 ** min(attempt, 10)
    if isinstance(error, ResourceExhausted) and error.retry_after_ms:
        return max(min(2.0, backoff), error.retry_after_ms / 1000)
    if isinstance(error, Unavailable) and (repeatable or not error.may_be_done):
        return min(AWAY_S, backoff)
    return None
