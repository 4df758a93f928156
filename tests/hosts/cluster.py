"""A service over some hosts, or over the first one alone."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from ps2stream.client.client import Client
from tests.chaos.host import free_ports
from tests.hosts.machine import UP_S, Machine
from tests.hosts.net import Net
from tests.support.certificates import Authority

TRIES = 12


class Shape(NamedTuple):
    """How many actors of each role there are."""

    workers: int
    dispatchers: int = 1
    mergers: int = 1


class Hosts:
    """The first `count` hosts of `net`, of which the first has Ray's head, and the process that
    serves. storage, options: of `serve`, the former also of `token create`. roles: what each host
    offers, by default all. Without `is_cluster` the first host serves alone, by a Ray of its own,
    and the others do nothing."""

    def __init__(
        self,
        net: Net,
        storage: Sequence[str],
        folder: Path,
        shape: Shape,
        options: Sequence[str] = (),
        roles: Sequence[str] = (),
        count: int = 2,
        is_cluster: bool = True,
    ) -> None:
        self.net = net
        self.dispatchers = shape.dispatchers
        free = free_ports(shape.dispatchers + 1)  # where the hosts are not separate
        self.port, self.head_port = free, free + shape.dispatchers
        authority = Authority(folder)
        pair = authority.issue("service", hosts=net.hosts)
        self._is_cluster = is_cluster
        self._storage = storage
        self._options = [*(f"--{role}={n}" for role, n in shape._asdict().items()), *options]
        self._options += [f"--tls-cert={pair.cert}", f"--tls-key={pair.key}"]
        self._roles = [f"--roles={each}" for each in roles]
        environ = {"HOME": str(folder), "RAY_raylet_start_wait_time_s": "180"}
        environ["RAY_memory_monitor_refresh_ms"] = "0"  # else others' memory is a fault, too
        if is_cluster:
            environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "ray-token")}
        self.machines = [Machine(net, i, folder, environ) for i in range(count)]
        self.targets = [
            "ipv4:" + ",".join(f"{host}:{self.port + i}" for host in net.hosts[:count])
            for i in range(shape.dispatchers)
        ]
        self.access: Mapping[str, Any] = {}
        self._ca = authority.ca
        self._commands: dict[int, subprocess.Popen[bytes]] = {}
        self._nodes = Counter[int]()  # how often each host was one of the cluster
        self._head = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for machine in reversed(self.machines):
            machine.kill()

    @property
    def head(self) -> Machine:
        """The host that has Ray's head, and the process that serves."""
        return self.machines[self._head]

    @property
    def first(self) -> Machine:
        return self.machines[0]

    @property
    def second(self) -> Machine:
        return self.machines[1]

    def add_options(self, *options: str) -> None:
        """Adds options of `serve`, before it starts."""
        self._options += options

    def start(self, head: int = 0) -> None:
        """Returns once the service is ready, of which this host has Ray's head. Raises
        RuntimeError."""
        self._head = head
        scopes = "--scope=admin,publish,subscribe,withdraw"
        made = self.head.run("token", "create", "--json", *self._storage, scopes)
        if self._is_cluster:
            self._start_head()
            for host in self._others():
                self.join(host)
        self.head.await_said('"token": "', made)
        said = [json.loads(line) for line in self.head.said().splitlines()]
        token = next(line["token"] for line in said if "scopes" in line)
        self.access = {"token": token, "tls_ca": self._ca}
        self._serve()

    def start_again(self, head: int, without: int) -> None:
        """Starts Ray and the service on this host and on others, but on one, as after the loss of
        the host that had its head."""
        for host in self._others():
            if host != without:
                self._commands[host].wait(UP_S)
        self._head = head
        self._start_head()
        for host in self._others():
            if host != without:
                self.join(host)
        self._serve()

    def join(self, host: int = 1) -> None:
        """This host comes, or comes again."""
        self._form(host, "join", f"{self.head.address}:{self.head_port}")

    def _others(self) -> list[int]:
        return [host for host in range(len(self.machines)) if host != self._head]

    def _start_head(self) -> None:
        self._form(self._head, "start", "--no-serve", f"--port={self.head_port}")

    def _form(self, host: int, *words: str) -> None:
        """Makes the host one of the cluster. Where Ray takes too long to start, as on a busy
        machine, it is tried again."""
        machine = self.machines[host]
        own = [f"--node-ip={machine.address}", *self._roles[host : host + 1]]
        for left in reversed(range(TRIES)):
            self._commands[host] = command = machine.run("cluster", *words, "--json", *own)
            try:
                machine.await_said('"node"', command, self._nodes[host] + 1)
            except RuntimeError:
                if not left:
                    raise
            else:
                self._nodes[host] += 1
                return

    def _serve(self) -> None:
        head = self.head
        where = ["--host=0.0.0.0", f"--port={self.port}"]
        if self._is_cluster:
            where += [f"--ray-address={head.address}:{self.head_port}"]
            where += [f"--node-ip={head.address}"]
        times = head.said().count('"ready"') + 1
        words = ["--json", "--log-format=json", *self._storage, *self._options]
        self.serve = head.run("serve", *where, *words)
        head.await_said('"ready"', self.serve, times)

    def client(self, timeout: float = 30.0) -> Client:
        return Client(self.targets[0], timeout=timeout, **self.access)

    def stop(self) -> list[int]:
        """The exit codes of the service and of the hosts that live, told to end in this order."""
        codes = []
        nodes = [self._commands[host] for host in (*self._others(), self._head)]
        for process in (self.serve, *nodes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                codes.append(process.wait(90))
        return codes
