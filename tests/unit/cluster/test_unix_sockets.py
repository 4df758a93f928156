"""Sockets of one host: what a socket does not take waits, and what is no message is refused."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from ps2stream.cluster import link_sockets
from ps2stream.cluster.fence import MessageHead
from ps2stream.cluster.links import PeerLinks
from ps2stream.cluster.unix_sockets import CHUNK_BYTES, MESSAGE_BYTES, UnixSockets
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import decode
from ps2stream.protocol.messages.objects import ReleasesKept
from ps2stream.protocol.messages.updates import LedgerTip

HERE = Address("worker", 0)
PEER = Address("dispatcher", 0)


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[tuple[PeerLinks, str]]:
    with closing(PeerLinks(HERE, 1)) as here:
        yield here, here.bind(tmp_path)


@pytest.fixture
def sender(inbox: tuple[PeerLinks, str]) -> Iterator[PeerLinks]:
    with closing(PeerLinks(PEER, 1)) as there:
        there.connect(HERE, inbox[1], 1)
        yield there


@pytest.fixture
def stranger(inbox: tuple[PeerLinks, str]) -> Iterator[socket.socket]:
    """A connection to the inbox of a process that writes what it likes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.connect(inbox[1].removeprefix("ipc://"))
        yield link


def kept(number: int, longs: int) -> ReleasesKept:
    return ReleasesKept(number, np.arange(number, number + longs))


def encode_message(number: int, *frames: bytes) -> bytes:
    parts = [MessageHead(PEER, 1, number).encode(), *frames]
    sizes = struct.pack(f"<{len(parts)}q", *map(len, parts))
    body = sizes + b"".join(parts)
    return struct.pack("<4sIq", b"PS2m", len(parts), len(body)) + body


def receive_next(links: PeerLinks, sender: PeerLinks | None = None) -> list[int]:
    """Returns the numbers of the frames of the next message."""
    for _ in range(1000):
        if sender is not None:
            sender.receive(0)
        if (data := links.receive(10)) is not None:
            return [frame.merger for frame in map(decode, data)]  # type: ignore[attr-defined]
    raise AssertionError("no message")


def is_closed(link: socket.socket, inbox: PeerLinks) -> bool:
    """Returns whether the inbox has closed the connection, which it does as it receives."""
    link.setblocking(False)
    for _ in range(100):
        assert not inbox.receive(10)
        try:
            return link.recv(1) == b""
        except BlockingIOError:
            continue
        except ConnectionResetError:
            return True
    return False


@pytest.mark.parametrize("longs", [1, 4000, CHUNK_BYTES // 8, 200_000, 4_000_000])
def test_messages_of_any_size_keep_what_is_in_them(
    inbox: tuple[PeerLinks, str], sender: PeerLinks, longs: int
) -> None:
    for number in range(3):
        sender.post([Send(HERE, kept(number, longs)), Send(HERE, kept(100 + number, 5))])
    for number in range(3):
        data = None
        while data is None:
            sender.receive(0)
            data = inbox[0].receive(10)
        first, second = map(decode, data)
        assert isinstance(first, ReleasesKept)
        assert isinstance(second, ReleasesKept)
        for frame, of, many in ((first, number, longs), (second, 100 + number, 5)):
            assert np.array_equal(frame.release, np.arange(of, of + many))
            # Kernels are compiled for read-only columns that are aligned, and for no others.
            assert not frame.release.flags.writeable
            assert frame.release.flags.aligned


def test_the_order_survives_a_socket_that_takes_parts_of_messages(
    inbox: tuple[PeerLinks, str], sender: PeerLinks
) -> None:
    n = 300
    for number in range(n):
        size = 100_000 if number % 3 == 0 else 3
        sender.post([Send(HERE, kept(number, size))])
    assert sender.dropped == 0
    assert [receive_next(inbox[0], sender) for _ in range(n)] == [[i] for i in range(n)]


def test_what_waits_leaves_when_more_is_posted(
    inbox: tuple[PeerLinks, str], sender: PeerLinks
) -> None:
    n = 100
    for number in range(n):
        sender.post([Send(HERE, kept(number, 50_000))])
    found: list[int] = []
    while found[-1:] != [n - 1]:  # the sender never receives
        found += [
            each
            for data in iter(lambda: inbox[0].receive(10), None)
            for each in [decode(frame).merger for frame in data]  # type: ignore[attr-defined]
        ]
        sender.post([Send(HERE, kept(1000, 1))])
        found = [each for each in found if each != 1000]
    assert found == list(range(n))


def test_a_loop_that_watches_the_descriptor_sends_what_waits(
    inbox: tuple[PeerLinks, str], sender: PeerLinks
) -> None:
    import select

    n = 100
    for number in range(n):
        sender.post([Send(HERE, kept(number, 50_000))])
    found: list[int] = []
    with closing(select.epoll()) as loop:
        loop.register(sender.fileno(), select.EPOLLIN)
        assert not loop.poll(0)  # the socket is full
        while len(found) < n:
            while (data := inbox[0].receive(0)) is not None:
                found += [decode(frame).merger for frame in data]  # type: ignore[attr-defined]
            if loop.poll(0):
                assert sender.receive(0) is None
    assert found == list(range(n))
    assert not sender.gone


def test_threads_that_post_at_once_do_not_mix_their_messages(
    inbox: tuple[PeerLinks, str], sender: PeerLinks
) -> None:
    def post(first: int) -> None:
        for number in range(first, first + n):
            sender.post([Send(HERE, kept(number, 3000))])

    n = 400
    threads = [threading.Thread(target=post, args=(k * n,)) for k in range(4)]
    for thread in threads:
        thread.start()
    found = [receive_next(inbox[0], sender)[0] for _ in range(4 * n)]
    for thread in threads:
        thread.join()
    for k in range(4):
        assert [each for each in found if each // n == k] == list(range(k * n, (k + 1) * n))


def test_a_message_that_was_cut_short_by_a_death_is_lost_and_the_rest_is_not(
    inbox: tuple[PeerLinks, str], sender: PeerLinks, stranger: socket.socket
) -> None:
    for frame in (kept(8, 3), kept(8, 500_000)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dying:
            dying.connect(inbox[1].removeprefix("ipc://"))
            whole = encode_message(1, kept(7, 3).encode())
            dying.sendall(whole if len(frame.release) == 3 else b"")
            dying.sendall(encode_message(2, frame.encode())[: len(whole) - 8])
        if len(frame.release) == 3:
            assert receive_next(inbox[0]) == [7]
        assert inbox[0].receive(10) is None
    sender.post([Send(HERE, kept(9, 3))])
    inbox[0].fence.raise_to(PEER, 0)
    assert inbox[0].receive() is not None


@pytest.mark.parametrize(
    "bad",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(64),
        struct.pack("<4sIq", b"PS2m", 1, MESSAGE_BYTES + 8),
        struct.pack("<4sIq", b"PS2m", 1, -8),
        struct.pack("<4sIq", b"PS2m", 1, 17),
        struct.pack("<4sIq", b"PS2m", 1 << 31, 64),
        struct.pack("<4sIqq", b"PS2m", 1, 16, 16) + bytes(8),
        struct.pack("<4sIqq", b"PS2m", 1, 16, -8) + bytes(8),
        struct.pack("<4sIqq", b"PS2m", 1, 16, 3) + bytes(8),
    ],
)
def test_what_is_no_message_ends_its_connection_and_no_other(
    inbox: tuple[PeerLinks, str], sender: PeerLinks, stranger: socket.socket, bad: bytes
) -> None:
    stranger.sendall(bad)
    assert is_closed(stranger, inbox[0])
    sender.post([Send(HERE, LedgerTip(1, 0))])
    assert inbox[0].receive() is not None


@pytest.mark.parametrize("parts", [[], [b"8 bytes."], [bytes(40)], [LedgerTip(1, 0).encode()]])
def test_a_message_without_a_head_is_refused(
    inbox: tuple[PeerLinks, str], stranger: socket.socket, parts: list[bytes]
) -> None:
    sizes = struct.pack(f"<{len(parts)}q", *map(len, parts))
    body = sizes + b"".join(parts)
    stranger.sendall(struct.pack("<4sIq", b"PS2m", len(parts), len(body)) + body)
    assert inbox[0].receive() == []
    assert inbox[0].fence.refused == 1


def test_a_length_alone_takes_no_memory(
    inbox: tuple[PeerLinks, str], stranger: socket.socket
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    stranger.sendall(struct.pack("<4sIq", b"PS2m", 1, MESSAGE_BYTES))
    assert inbox[0].receive(10) is None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_what_waited_for_a_peer_that_died_does_not_reach_its_successor(
    inbox: tuple[PeerLinks, str], sender: PeerLinks, tmp_path: Path
) -> None:
    for number in range(100):
        sender.post([Send(HERE, kept(number, 50_000))])
    inbox[0].close()
    assert sender.receive(1000) is None
    assert [*sender.gone] == [HERE]
    sender.post([Send(HERE, kept(500, 1))])
    with closing(PeerLinks(HERE, 2)) as successor:
        sender.connect(HERE, successor.bind(tmp_path), 2)
        sender.post([Send(HERE, kept(501, 1))])
        assert receive_next(successor) == [501]
        assert successor.receive(10) is None


def test_a_peer_that_is_gone_is_noted_once_also_while_much_waits(
    inbox: tuple[PeerLinks, str], sender: PeerLinks
) -> None:
    for number in range(100):
        sender.post([Send(HERE, kept(number, 50_000))])
    inbox[0].close()
    for _ in range(5):
        sender.post([Send(HERE, kept(1, 1))])
        assert sender.receive(10) is None
    assert [*sender.gone] == [HERE]


def test_an_absent_peer_may_be_connected_to_later(tmp_path: Path) -> None:
    with closing(PeerLinks(PEER, 1)) as sender:
        sender.connect(HERE, f"ipc://{tmp_path}/nobody", 1)
        sender.post([Send(HERE, kept(1, 1))])
        assert sender.receive(0) is None
        assert not sender.gone  # its end was never open
        with closing(PeerLinks(HERE, 2)) as here:
            sender.connect(HERE, here.bind(tmp_path), 2)
            sender.post([Send(HERE, kept(2, 1))])
            assert receive_next(here) == [2]


def test_an_inbox_that_has_no_descriptor_for_a_peer_looks_again_later(
    inbox: tuple[PeerLinks, str], sender: PeerLinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = inbox[0]
    sockets = here._sockets
    assert isinstance(sockets, UnixSockets)
    looks: list[int] = []
    [(descriptor, accept)] = sockets._handlers.items()

    def accept_and_note(events: int) -> None:
        looks.append(events)
        accept(events)

    monkeypatch.setitem(sockets._handlers, descriptor, accept_and_note)
    sender.post([Send(HERE, kept(1, 1))])
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, usual[1]))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for turn in (1, 2):
            assert here.receive(10) is None
            assert len(looks) == turn  # not again and again while it waits
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    assert receive_next(here) == [1]


def test_many_peers_are_read_in_turn(
    inbox: tuple[PeerLinks, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    many, each = 60, 20
    peers = [PeerLinks(Address("dispatcher", i), 1) for i in range(many)]
    try:
        for peer in peers:
            peer.connect(HERE, inbox[1], 1)
            for number in range(each):
                peer.post([Send(HERE, kept(number, 2000))])
        first = [receive_next(inbox[0])[0] for _ in range(many * each)]
    finally:
        for peer in peers:
            peer.close()
    assert sorted(first) == sorted(list(range(each)) * many)
    # A chunk holds two of these messages, so that nobody is read to the end before the others.
    assert max(first[: 2 * many]) <= 3


def test_the_inbox_leaves_no_file_and_no_descriptor_behind(tmp_path: Path) -> None:
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    for epoch in range(1, 20):
        with closing(PeerLinks(HERE, epoch)) as here, closing(PeerLinks(PEER, epoch)) as there:
            there.connect(HERE, here.bind(tmp_path), 1)
            here.connect(PEER, there.bind(tmp_path), 1)
            there.post([Send(HERE, kept(1, 1))])
            assert receive_next(here) == [1]
    assert count() == before
    assert not list(tmp_path.iterdir())


def test_what_waits_is_counted_as_dropped_beyond_the_bound_only(
    inbox: tuple[PeerLinks, str], sender: PeerLinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = len(encode_message(1, kept(0, 50_000).encode()))
    monkeypatch.setattr(link_sockets, "LINK_BYTES", 10 * message)
    n = 200
    for number in range(n):
        sender.post([Send(HERE, kept(number, 50_000))])
    assert sender.dropped > 0
    found = [receive_next(inbox[0], sender)[0] for _ in range(n - sender.dropped)]
    assert found == list(range(len(found)))  # the first ones, without a hole
    assert inbox[0].receive(10) is None
