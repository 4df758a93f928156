"""The interface of a running service, and its addresses and place from the settings."""

from __future__ import annotations

import abc
import ipaddress
from types import TracebackType
from typing import Any, Self

from ps2stream.cluster.actor_home import ActorHome, numeric
from ps2stream.config import Settings
from ps2stream.errors import Unavailable
from ps2stream.store.places import StoragePlace, place


class RunningService(abc.ABC):
    """A running service: `targets` are the dispatchers' host:port."""

    targets: list[str]
    failure: str = ""
    """Why the service cannot go on, so that its caller should stop it; empty while it can."""

    @abc.abstractmethod
    def status(self) -> dict[str, Any]:
        """Returns the counters of every actor, by name; `failure` is not empty if it stopped."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Stops what this service started, and only that."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def find_port(settings: Settings, dispatcher: int) -> int:
    """Returns the port of a dispatcher; 0: any free one."""
    step = settings.port > 0 and settings.dispatcher_ports == "consecutive"
    return settings.port + dispatcher * step


def ports(settings: Settings) -> list[int]:
    """Returns the port of each dispatcher that the settings ask for; 0: any free one."""
    return [find_port(settings, i) for i in range(settings.dispatchers)]


def check_port(settings: Settings, dispatcher: int) -> None:
    """Raises Unavailable if the settings leave no port for a dispatcher that is to join."""
    if find_port(settings, dispatcher) > 65535:
        raise Unavailable(f"port: {settings.port} is too high for dispatcher {dispatcher}")
    if settings.dispatcher_ports == "same" and settings.ray_address is None and dispatcher:
        raise Unavailable('dispatcher_ports: "same" allows one dispatcher per host')


def target(host: str, port: int, home: ActorHome | None = None) -> str:
    """Returns where clients reach a port opened at `host` on the host of `home`; None: this one."""
    everywhere = ipaddress.ip_address(host).is_unspecified if host != "localhost" else False
    return f"{numeric(home.host if home is not None and everywhere else host)}:{port}"


def place_of(settings: Settings) -> StoragePlace:
    """Returns the place where the service stores its data. Raises FailedPrecondition,
    InvalidArgument."""
    url = settings.database_url
    secret = None if url is None else url.get_secret_value()
    return place(
        settings.data_dir, secret, settings.database_schema, settings.log_url, settings.log_config,
        is_database_replicated=settings.database_replicated,
        are_transactions_replicated=settings.log_transactions_replicated,
    )  # fmt: skip
