"""What every running service can do."""

from __future__ import annotations

import abc
import ipaddress
from types import TracebackType
from typing import Any, Self

from ps2stream.cluster.home import Home, numeric
from ps2stream.config import Settings
from ps2stream.store.places import Place, place


class Service(abc.ABC):
    """A running service: `targets` are the dispatchers' host:port."""

    targets: list[str]
    failure: str = ""
    """Why the service cannot go on; whoever started it is to stop it. Empty: it can."""

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
    """Of each dispatcher; 0: any free one."""
    step = settings.port > 0 and settings.dispatcher_ports == "consecutive"
    return [settings.port + i * step for i in range(settings.dispatchers)]


def target(host: str, port: int, home: Home | None = None) -> str:
    """Where clients reach what listens at `host` there; None: here."""
    everywhere = ipaddress.ip_address(host).is_unspecified if host != "localhost" else False
    return f"{numeric(home.host if home is not None and everywhere else host)}:{port}"


def place_of(settings: Settings) -> Place:
    """Where the service keeps what is to last. Raises FailedPrecondition."""
    url = settings.database_url
    secret = None if url is None else url.get_secret_value()
    return place(settings.data_dir, secret, settings.database_schema)
