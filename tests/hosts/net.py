"""Hosts of a network of their own, which can be cut off: namespaces, tied by a bridge."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path


class Net:
    """`hosts` are addresses that reach each other, and that this process reaches."""

    hosts: list[str]
    separate = False
    """Whether a host can be cut off."""

    def within(self, host: int) -> list[str]:
        """What a command begins with that is to run there."""
        raise NotImplementedError

    def cut(self, host: int, off: bool = True) -> None:
        """Pull its cable, or plug it in again."""
        raise NotImplementedError

    def sent_bytes(self) -> int:
        """Returns what all interfaces have sent, with those of this process; 0 if unknown."""
        return 0


class Loopback(Net):
    """Addresses of this host, of which none can be cut off."""

    def __init__(self, n: int) -> None:
        self.hosts = [f"127.0.0.{i + 2}" for i in range(n)]

    def within(self, host: int) -> list[str]:
        return []


class Namespaces(Net):
    """`with made(n)`; needs root, and `ip`."""

    separate = True

    def __init__(self, n: int) -> None:
        self._name = f"ps{os.getpid() % 100_000}"
        self._subnet = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        self.hosts = [f"{self._subnet}.{i + 2}" for i in range(n)]

    def within(self, host: int) -> list[str]:
        return ["ip", "netns", "exec", f"{self._name}n{host}"]

    def cut(self, host: int, off: bool = True) -> None:
        _ip(f"link set {self._name}v{host} {'down' if off else 'up'}")

    def sent_bytes(self) -> int:
        folder = Path("/sys/class/net")
        ways = [folder / f"{self._name}v{i}/statistics/rx_bytes" for i in range(len(self.hosts))]
        ways.append(folder / f"{self._name}b/statistics/tx_bytes")
        return sum(int(path.read_text()) for path in ways)

    def make(self) -> None:
        bridge = f"{self._name}b"
        _ip(f"link add {bridge} type bridge")
        _ip(f"addr add {self._subnet}.1/24 dev {bridge}")
        _ip(f"link set {bridge} up")
        for i, address in enumerate(self.hosts):
            space, cable = f"{self._name}n{i}", f"{self._name}v{i}"
            _ip(f"netns add {space}")
            _ip(f"link add {cable} type veth peer name eth0 netns {space}")
            _ip(f"link set {cable} master {bridge} up")
            _ip(f"-n {space} addr add {address}/24 dev eth0")
            _ip(f"-n {space} link set eth0 up")
            _ip(f"-n {space} link set lo up")

    def end(self) -> None:
        with contextlib.suppress(RuntimeError):
            _ip(f"link del {self._name}b")
        for i in range(len(self.hosts)):
            with contextlib.suppress(RuntimeError):
                _ip(f"netns del {self._name}n{i}")


@contextlib.contextmanager
def made(n: int) -> Iterator[Net]:
    """Namespaces where they can be made, else addresses of this host."""
    spaces = Namespaces(n)
    try:
        try:
            spaces.make()
        except (RuntimeError, OSError):
            yield Loopback(n)
        else:
            yield spaces
    finally:
        if shutil.which("ip") is not None:
            spaces.end()


def _ip(words: str) -> None:
    done = subprocess.run(["ip", *words.split()], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {words}: {done.stderr}")
