"""What every running service can do."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import Any, Self

from ps2stream.config import Settings
from ps2stream.store.places import Place, place


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


def place_of(settings: Settings) -> Place:
    """Where the service keeps what is to last. Raises FailedPrecondition."""
    url = settings.database_url
    secret = None if url is None else url.get_secret_value()
    return place(settings.data_dir, secret, settings.database_schema)
