"""The port of the service to a dispatcher, and the edge that implements it."""

from __future__ import annotations

import inspect

import pytest

from ps2stream.cluster.dispatcher_edge import DispatcherEdge, EdgeStream
from ps2stream.dispatcher.gateway import DeliverStream, DispatcherGateway
from tests.support.desk import Desk, attached

METHODS = [
    (port, real, name)
    for port, real in ((DispatcherGateway, DispatcherEdge), (DeliverStream, EdgeStream))
    for name, member in vars(port).items()
    if inspect.isfunction(member) and not name.startswith("_")
]


@pytest.mark.parametrize(("port", "real", "name"), METHODS)
def test_methods_are_called_alike(port: type, real: type, name: str) -> None:
    want, have = (inspect.signature(getattr(of, name)).parameters for of in (port, real))
    assert list(have) == list(want)
    assert [p.default for p in have.values()] == [p.default for p in want.values()]


def test_what_the_service_reads_is_there() -> None:
    desk = Desk()
    attributes = [name for name, it in vars(DispatcherGateway).items() if isinstance(it, property)]
    assert {"analyzer", "clock_ms", "grid"} <= {*attributes}
    for name in attributes:
        assert getattr(desk.edge, name) is not None
    stream = attached(desk, [])
    assert (stream.session, stream.epoch) == (9, 4)
