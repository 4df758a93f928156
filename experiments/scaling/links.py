"""What a message costs on its way between two actors: processor time at both ends, by its bytes.

Two processes send each other messages in turn, over the links of the service. One that waits for
each message is woken for each, as actors are that are not busy.
"""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from ps2stream.cluster.actor_home import ActorHome, clock
from ps2stream.cluster.links import PeerLinks
from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.experiments.scaling.fit import fit_factors
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.messages.sessions import StreamDelivery

NEAR, FAR = Address("dispatcher", 0), Address("worker", 0)
SIZES = 200, 20_000, 200_000  # bytes
ROUNDS, TURNS = 5, 100
LIMIT_MS = 10_000


class LinkCost(NamedTuple):
    """CPU microseconds of a message, and of each of its bytes, at either end: sent and received
    together cost twice that; and the microseconds that it is on its way."""

    message_us: float
    byte_us: float
    way_us: float

    def price(self, messages: float, size: float) -> float:
        """Returns the CPU microseconds at one end of messages of so many bytes together."""
        return self.message_us * messages + self.byte_us * size


def _make_frame(size: int) -> StreamDelivery:
    return StreamDelivery(0, 1, 1, 0, np.zeros(size, np.uint8))


def _open_links(
    owner: Address, over_tcp: bool, folder: Path
) -> tuple[PeerLinks, tuple[str, ActorHome | None]]:
    links = PeerLinks(owner, 1)
    if over_tcp:
        return links, links.listen(ActorHome(owner.role, "127.0.0.1", clock()))
    return links, (links.bind(folder), None)


def _join(
    links: PeerLinks, pipe: Connection, peer: Address, own: tuple[str, ActorHome | None]
) -> None:
    """Connects both ends: each learns the other's endpoint through the pipe."""
    pipe.send(own)
    endpoint, home = pipe.recv()
    if home is not None:
        links.admit(peer, home)
    pipe.send(None)
    pipe.recv()
    links.connect(peer, endpoint, 1, home)


def _wait_for_message(links: PeerLinks) -> None:
    deadline = time.monotonic() + LIMIT_MS / 1e3
    while not links.receive(100):
        if time.monotonic() > deadline:
            raise TimeoutError("no message came over the link for 10 s")


def _answer(pipe: Connection, folder: Path, over_tcp: bool) -> None:
    """Answers each message with one of the same size, and tells its own CPU time."""
    links, own = _open_links(FAR, over_tcp, folder)
    _join(links, pipe, NEAR, own)
    while (size := pipe.recv()) is not None:
        frame = _make_frame(size)
        pipe.send(None)
        began = time.process_time()
        for _ in range(TURNS):
            _wait_for_message(links)
            links.post([Send(NEAR, frame)])
        pipe.send(time.process_time() - began)
    links.close()


def measure_links(over_tcp: bool) -> LinkCost:
    """Returns the cost of messages between two processes of this machine: over Unix sockets as on
    one host, or over TCP with CURVE as between hosts."""
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    with PrivateFolder() as folder:
        process = context.Process(target=_answer, args=(other, folder.path, over_tcp))
        process.start()
        try:
            links, own = _open_links(NEAR, over_tcp, folder.path)
            _join(links, pipe, FAR, own)
            spent = {size: [_measure_turns(links, pipe, size) for _ in range(ROUNDS)]
                     for size in SIZES}  # fmt: skip
            pipe.send(None)
            links.close()
        finally:
            process.join(5)
            process.terminate()
    cpu = [median(took for took, _ in spent[size]) for size in SIZES]
    message, byte = fit_factors([(1, size) for size in SIZES], cpu)
    return LinkCost(message, byte, median(way for _, way in spent[SIZES[0]]))


def _measure_turns(links: PeerLinks, pipe: Connection, size: int) -> tuple[float, float]:
    """Returns the CPU microseconds of a message at one end, and how long it takes."""
    frame = _make_frame(size)
    pipe.send(size)
    pipe.recv()
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(TURNS):
        links.post([Send(FAR, frame)])
        _wait_for_message(links)
    cpu, took = time.process_time() - cpu, time.perf_counter() - began
    both = cpu + float(pipe.recv())
    return 1e6 * both / TURNS / 4, 1e6 * took / TURNS / 2
