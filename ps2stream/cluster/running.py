"""What every running service can do."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import Any, Self

from ps2stream.config import Settings


class Service(abc.ABC):
    """A running service: `targets` are the dispatchers' host:port."""

    targets: list[str]

    @abc.abstractmethod
    def status(self) -> dict[str, Any]:
        """Counters of every actor, by name; `failure` is not empty where one stopped."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Stop what this service started, and only that."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def ports(settings: Settings) -> list[int]:
    """Consecutive ports, or 0 (any free one) for each dispatcher."""
    return [settings.port + i if settings.port else 0 for i in range(settings.dispatchers)]
