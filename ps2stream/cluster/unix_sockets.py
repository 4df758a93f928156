"""Links between the actors of one host: Unix stream sockets without threads of their own.

Whoever posts writes to the socket itself. What the socket does not take waits in the sender, and
leaves when more is posted or when the thread that receives finds the socket writable. That thread
reads from the sockets themselves, too: a message wakes it and no other (docs/decisions/0021).

A message is a prefix (magic, number of parts, bytes that follow it), the sizes of its parts, and
the parts, all of them multiples of eight bytes, so that the columns of every frame are aligned.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from ps2stream.cluster.actor_home import ActorHome
from ps2stream.cluster.link_sockets import LinkSockets, MessageParts, WaitingBytes
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.frame import FrameError

MESSAGE_BYTES = 1 << 31
"""Most bytes of a message. Memory is taken as they come, not by what a prefix says."""
SOCKET_BYTES = 4 << 20
"""Bytes that the system is asked to hold for one peer; it may grant fewer."""
CHUNK_BYTES = 32 << 10
"""Bytes that are read at once. Shorter messages are copied out of them; the rest of a longer one
goes to where it stays."""
_PEERS = 4096
"""Most peers that may wait to be accepted."""
_BUFFERS = 512
"""Buffers that are written at once; Linux takes 1,024."""
_PREFIX = struct.Struct("<4sIq")
_MAGIC = b"PS2m"
_NO_ROOM = (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM)


class UnixSockets(LinkSockets):
    """The sockets of an actor whose peers are on this host; see LinkSockets."""

    def __init__(self, lock: threading.Lock) -> None:
        self.gone: deque[Address] = deque()
        self._lock = lock
        self._readiness = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}  # by descriptor
        self._outlets: dict[Address, _UnixOutlet] = {}
        self._inbox: socket.socket | None = None
        self._is_accepting = True  # else an earlier look found too many files open
        self._connections: dict[int, _UnixConnection] = {}  # by descriptor
        self._received: deque[MessageParts] = deque()
        self._is_drained = False  # the last look found messages, and no socket with more

    def bind(self, path: Path) -> None:
        """Opens the inbox at `path`, which may have been another incarnation's."""
        path.unlink(missing_ok=True)
        inbox = self._inbox = _open_socket()
        inbox.bind(str(path))
        inbox.listen(_PEERS)
        self._watch(inbox, select.EPOLLIN, self._accept_peers)

    def connect(self, peer: Address, endpoint: str, home: ActorHome | None) -> None:
        link = _open_socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
        outlet = _UnixOutlet(link, self._readiness)
        try:
            link.connect(endpoint.removeprefix("ipc://"))
        except OSError:  # the peer has died, and is replaced
            outlet.end()
            link.close()
        else:
            self._watch(link, 0, partial(self._tend_outlet, peer, outlet))
        with self._lock:
            old, self._outlets[peer] = self._outlets.get(peer), outlet
        self._close_outlet(old)

    def disconnect(self, peer: Address) -> None:
        with self._lock:
            old = self._outlets.pop(peer, None)
        self._close_outlet(old)

    def send(self, peer: Address, parts: Sequence[bytes]) -> bool:
        outlet = self._outlets.get(peer)
        return outlet is None or outlet.send(parts)

    def receive(self, wait_ms: int) -> MessageParts | None:
        if self._received:
            return self._received.popleft()
        if not wait_ms and self._is_drained:
            self._is_drained = False
            return None
        if not self._is_accepting and self._inbox is not None:
            self._is_accepting = True
            self._readiness.modify(self._inbox, select.EPOLLIN)
        until = time.monotonic() + wait_ms / 1000
        left_s = wait_ms / 1000
        while True:
            self._is_drained = True
            for descriptor, events in self._readiness.poll(left_s):
                self._handlers[descriptor](events)
            if self._received:
                return self._received.popleft()
            self._is_drained = False
            left_s = until - time.monotonic()
            if self.gone or left_s <= 0:
                return None

    def fileno(self) -> int:
        return self._readiness.fileno()

    def find_gone(self, surely: bool) -> None:
        """Does nothing: `receive` sees them as it looks for messages."""

    def close(self) -> None:
        for outlet in self._outlets.values():
            self._close_outlet(outlet)
        for connection in self._connections.values():
            connection.socket.close()
        if self._inbox is not None:
            with contextlib.suppress(OSError):  # the folder may be gone
                Path(self._inbox.getsockname()).unlink()
            self._inbox.close()
        self._readiness.close()

    def _watch(self, link: socket.socket, events: int, handle: Callable[[int], None]) -> None:
        self._handlers[link.fileno()] = handle
        self._readiness.register(link, events)

    def _unwatch(self, link: socket.socket) -> None:
        self._readiness.unregister(link)
        del self._handlers[link.fileno()]
        link.close()

    def _accept_peers(self, _: int) -> None:
        assert self._inbox is not None
        while True:
            try:
                link, _ = self._inbox.accept()
            except BlockingIOError:  # none is left
                return
            except OSError:  # too many files are open, and the peer would be announced for ever
                self._is_accepting = False
                self._readiness.modify(self._inbox, 0)
                return
            link.setblocking(False)
            connection = self._connections[link.fileno()] = _UnixConnection(link)
            self._watch(link, select.EPOLLIN, partial(self._read_from, connection))
            self._read_from(connection)

    def _read_from(self, connection: _UnixConnection, _: int = select.EPOLLIN) -> None:
        """Reads messages of a peer; what it had not sent entirely when its end closed is lost."""
        try:
            is_open = connection.read(self._received)
        except (OSError, FrameError):  # only a stranger sends what is no message
            is_open = False
        if not is_open:
            del self._connections[connection.socket.fileno()]
            self._unwatch(connection.socket)
        elif connection.may_have_more:
            self._is_drained = False

    def _tend_outlet(self, peer: Address, outlet: _UnixOutlet, events: int) -> None:
        with self._lock:
            if events & (select.EPOLLHUP | select.EPOLLERR):
                outlet.end()
            else:
                outlet.flush()
        if outlet.is_closed:
            self._unwatch(outlet.socket)
            self.gone.append(peer)

    def _close_outlet(self, outlet: _UnixOutlet | None) -> None:
        if outlet is not None and outlet.socket.fileno() >= 0:
            self._unwatch(outlet.socket)


class _UnixOutlet:
    """The sender's end of a link, and what waits there. Used by one thread at a time."""

    def __init__(self, link: socket.socket, readiness: select.epoll) -> None:
        self.socket = link
        self.is_closed = False
        self._readiness = readiness
        self._is_watched = False  # until the socket is writable
        self._queue: deque[bytes | memoryview] = deque()
        self._waiting = WaitingBytes()

    def send(self, parts: Sequence[bytes]) -> bool:
        """Sends the parts as one message; returns False if too much waits, so it was dropped."""
        sizes = list(map(len, parts))
        size = 8 * len(sizes) + sum(sizes)
        if size > MESSAGE_BYTES or not self._waiting.admit(_PREFIX.size + size):
            return False
        if not self.is_closed:
            self._queue.append(_PREFIX.pack(_MAGIC, len(sizes), size) + _pack_sizes(sizes))
            self._queue += parts
            self.flush()
        return True

    def flush(self) -> None:
        """Writes what waits, as far as the socket takes it."""
        queue = self._queue
        while queue and not self.is_closed:
            try:
                sent = self.socket.sendmsg(list(islice(queue, _BUFFERS)))
            except OSError as error:
                if error.errno in _NO_ROOM:
                    break
                self.end()  # the thread that receives is informed, too
                return
            self._waiting.remove(sent)
            while queue and len(queue[0]) <= sent:
                sent -= len(queue.popleft())
            if sent:
                queue[0] = memoryview(queue[0])[sent:]
        if bool(queue) != self._is_watched:
            self._is_watched = bool(queue)
            self._readiness.modify(self.socket, select.EPOLLOUT if queue else 0)

    def end(self) -> None:
        """Sends nothing more: the peer has closed its end. What is lost is still counted as if it
        waited, so that a peer that stays away is noticed."""
        self.is_closed = True
        self._queue.clear()


class _UnixConnection:
    """The receiver's end of a link, and the message of which it has read a part."""

    def __init__(self, link: socket.socket) -> None:
        self.socket = link
        self.may_have_more = False
        self._chunk = memoryview(bytearray(CHUNK_BYTES))
        self._filled = 0
        self._long: memoryview | None = None  # a message longer than a chunk, after its prefix
        self._long_filled = 0
        self._long_parts = 0

    def read(self, received: deque[MessageParts]) -> bool:
        """Reads at most a chunk, and the rest of a message longer than that; appends the messages
        that are complete. Returns False if the peer has closed its end. Raises FrameError."""
        if self._long is None:
            room = self._chunk[self._filled :]
            if (got := self._read_into(room)) <= 0:
                return got < 0
            self._filled += got
            self._take_messages(received)
        while self._long is not None:
            if (got := self._read_into(self._long[self._long_filled :])) <= 0:
                return got < 0
            self._long_filled += got
            if self._long_filled == len(self._long):
                received.append(_split_parts(self._long.toreadonly(), self._long_parts))
                self._long = None
        return True

    def _read_into(self, room: memoryview) -> int:
        """Returns how many bytes were read; 0 at the end of the stream, -1 if none have come."""
        try:
            got = self.socket.recv_into(room)
        except BlockingIOError:
            self.may_have_more = False
            return -1
        self.may_have_more = got == len(room)
        return got

    def _take_messages(self, received: deque[MessageParts]) -> None:
        """Copies the complete messages out of the chunk, and begins a long one."""
        chunk, at, end = self._chunk, 0, self._filled
        while end - at >= _PREFIX.size:
            magic, count, size = _PREFIX.unpack_from(chunk, at)
            if magic != _MAGIC or not 8 * count <= size <= MESSAGE_BYTES or size & 7:
                raise FrameError("not the beginning of a message")
            body = at + _PREFIX.size
            if body + size <= end:
                parts = _split_parts(chunk[body : body + size], count)
                received.append([bytes(part) for part in parts])
                at = body + size
                continue
            if _PREFIX.size + size > len(chunk):
                self._long = np.empty(size, np.uint8).data
                self._long[: end - body] = chunk[body:end]
                self._long_filled, self._long_parts = end - body, count
                at = end
            break
        chunk[: end - at] = chunk[at:end]
        self._filled = end - at


def _open_socket() -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.setblocking(False)
    return link


def _pack_sizes(sizes: list[int]) -> bytes:
    return struct.pack(f"<{len(sizes)}q", *sizes)


def _split_parts(body: memoryview, count: int) -> list[memoryview]:
    """Returns the parts of a message; `body` is what follows its prefix. Raises FrameError."""
    sizes = struct.unpack_from(f"<{count}q", body)
    at, parts = 8 * count, []
    for size in sizes:
        if size < 0 or size & 7 or at + size > len(body):
            raise FrameError("a message with parts of wrong sizes")
        parts.append(body[at : at + size])
        at += size
    return parts
