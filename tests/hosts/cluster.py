"""A service over some hosts, or over the first one alone."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from ps2stream.client.client import Client
from tests.chaos.host import free_ports
from tests.hosts.machine import Machine
from tests.hosts.net import Net
from tests.support.certificates import Authority


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
        environ = {"HOME": str(folder)}
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for machine in reversed(self.machines):
            machine.kill()

    @property
    def first(self) -> Machine:
        return self.machines[0]

    @property
    def second(self) -> Machine:
        return self.machines[1]

    def start(self) -> None:
        """Returns once the service is ready. Raises RuntimeError."""
        head = self.first
        if self._is_cluster:
            port = f"--port={self.head_port}"
            self._run_node(0, "cluster", "start", "--no-serve", "--json", port)
        scopes = "--scope=admin,publish,subscribe,withdraw"
        made = head.run("token", "create", "--json", *self._storage, scopes)
        if self._is_cluster:
            head.await_said('"node"', self._commands[0])
            for host in range(1, len(self.machines)):
                self.join(host)
        head.await_said('"token": "', made)
        said = [json.loads(line) for line in head.said().splitlines()]
        token = next(line["token"] for line in said if "scopes" in line)
        self.access = {"token": token, "tls_ca": self._ca}
        where = ["--host=0.0.0.0", f"--port={self.port}"]
        if self._is_cluster:
            where += [f"--ray-address={head.address}:{self.head_port}"]
            where += [f"--node-ip={head.address}"]
        where += ["--json", "--log-format=json"]
        self.serve = head.run("serve", *where, *self._storage, *self._options)
        head.await_said('"ready"', self.serve)

    def join(self, host: int = 1) -> None:
        """This host comes, or comes again."""
        machine = self.machines[host]
        times = machine.said().count('"node"') + 1
        self._run_node(host, "cluster", "join", f"{self.first.address}:{self.head_port}", "--json")
        machine.await_said('"node"', self._commands[host], times)

    def client(self, timeout: float = 30.0) -> Client:
        return Client(self.targets[0], timeout=timeout, **self.access)

    def stop(self) -> list[int]:
        """The exit codes of the service and of the hosts that live, told to end in this order."""
        codes = []
        nodes = [process for _, process in sorted(self._commands.items(), reverse=True)]
        for process in (self.serve, *nodes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                codes.append(process.wait(90))
        return codes

    def _run_node(self, host: int, *words: str) -> None:
        machine = self.machines[host]
        own = [f"--node-ip={machine.address}", *self._roles[host : host + 1]]
        self._commands[host] = machine.run(*words, *own)
