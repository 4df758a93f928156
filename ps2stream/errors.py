"""Errors that a user can meet. Each names the field, what is wrong with its value, the limit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple


def short(value: Any) -> str:
    """Returns the value as an error shows it: at most 60 characters."""
    is_json = value is None or isinstance(value, dict | list | bool)
    text = json.dumps(value, ensure_ascii=False, default=repr) if is_json else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class Violation(NamedTuple):
    """A bad field: its path in the request (`queries[3].region`) and what is wrong with it."""

    field: str
    description: str


class Ps2StreamError(Exception):
    """Base of all errors that this package raises on purpose."""


class InvalidArgument(Ps2StreamError):
    """The request can never succeed as it is."""

    def __init__(self, violations: Sequence[Violation]) -> None:
        self.violations = tuple(violations)
        super().__init__("; ".join(f"{v.field}: {v.description}" for v in self.violations))

    def __reduce__(self) -> tuple[type[InvalidArgument], tuple[tuple[Violation, ...]]]:
        return type(self), (self.violations,)


def invalid(field: str, problem: str) -> InvalidArgument:
    """Returns the error for one bad field of a request; `problem` says what is wrong with it."""
    return InvalidArgument([Violation(field, problem)])


class AlreadyExists(Ps2StreamError):
    """The id is taken by another query."""


class NotFound(Ps2StreamError):
    """There is no such live query."""


class ResourceExhausted(Ps2StreamError):
    """The request was refused before anything was acknowledged; retry after `retry_after_ms`."""

    def __init__(self, message: str, retry_after_ms: int = 50) -> None:
        self.retry_after_ms = retry_after_ms
        super().__init__(message)


class OverQuota(ResourceExhausted):
    """The tenant publishes more than its quota."""


class FailedPrecondition(Ps2StreamError):
    """The state of the service forbids the request: a foreign plan, a stale cursor, a level
    that is not available."""


class Unavailable(Ps2StreamError):
    """The service cannot answer now; a retry may succeed. `may_be_done`: False if surely nothing of
    the call was done, as it did not reach the service, or was refused before all else."""

    may_be_done = True


class NothingDone(Unavailable):
    """The dispatcher refused a call before all else; another one may take it."""

    may_be_done = False


class Cancelled(Ps2StreamError):
    """The caller left before the work was done, and none of it was done."""


class StoreFailed(Unavailable):
    """A write failed and it is unknown what reached the disk: the process that owns the store
    must end, and its successor read the store again."""


class Unauthenticated(Ps2StreamError):
    """The caller has no token or certificate that the service knows, or it is no longer valid."""


class PermissionDenied(Ps2StreamError):
    """The token or certificate is known, but lacks the scope."""


class DataDirectoryError(Ps2StreamError):
    """The data directory is in use, damaged, or of a newer version."""


class PlanError(Ps2StreamError):
    """A plan file is unreadable, damaged, of another format version, or foreign."""
