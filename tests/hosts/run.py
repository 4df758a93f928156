"""A service over two hosts, its clients, the faults, the verdict."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from unittest import mock

from ps2stream.client import requests
from ps2stream.client.client import Client
from tests.chaos.host import free_ports
from tests.chaos.moves import FAILURES
from tests.chaos.run import Crowd, Say, settled, teller
from tests.chaos.verdict import recoveries
from tests.hosts.machine import Machine
from tests.hosts.net import Net, made
from tests.support.certificates import Authority
from tests.support.postgres_server import Server

WORKERS, DISPATCHERS, MERGERS = 2, 2, 2
SHAPE = (f"--workers={WORKERS}", f"--dispatchers={DISPATCHERS}", f"--mergers={MERGERS}")
LEASE_S = 6.0
CUT_LEASES = 3.3  # how long a cable is out
REST_S = 3.0
LIMIT_S = 60.0


class Hosts:
    """Two hosts: the first has Ray's head, and the process that serves."""

    dispatchers = DISPATCHERS

    def __init__(self, net: Net, postgres: Server, folder: Path, lease_s: float) -> None:
        self.net = net
        free = free_ports(DISPATCHERS + 1)  # where the hosts are not separate
        self.port, self.head_port = free, free + DISPATCHERS
        self.lease_s = lease_s
        authority = Authority(folder)
        pair = authority.issue("service", hosts=net.hosts)
        self._database = [f"--database-url={postgres.url}", "--database-schema=hosts"]
        self._tls = [f"--tls-cert={pair.cert}", f"--tls-key={pair.key}"]
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "ray-token")}
        self.first, self.second = (
            Machine(net, i, folder, token | {"HOME": str(folder)}) for i in range(2)
        )
        self.targets = [
            "ipv4:" + ",".join(f"{host}:{self.port + i}" for host in net.hosts)
            for i in range(DISPATCHERS)
        ]
        self.access: Mapping[str, Any] = {}
        self._ca = authority.ca
        self._joined = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for machine in (self.second, self.first):
            machine.kill()

    def start(self) -> None:
        """Returns once the service is ready. Raises RuntimeError."""
        head, words = self.first, ("cluster", "start", "--no-serve", "--json")
        self.head = head.run(*words, f"--node-ip={head.address}", f"--port={self.head_port}")
        scopes = "--scope=admin,publish,subscribe,withdraw"
        made = head.run("token", "create", "--json", *self._database, scopes)
        head.await_said('"node"', self.head)
        self.join()
        head.await_said('"token": "', made)
        said = [json.loads(line) for line in head.said().splitlines()]
        token = next(line["token"] for line in said if "scopes" in line)
        self.access = {"token": token, "tls_ca": self._ca}
        where = [f"--ray-address={head.address}:{self.head_port}", f"--node-ip={head.address}"]
        where += ["--host=0.0.0.0", f"--port={self.port}", f"--lease-s={self.lease_s}"]
        options = ["--json", "--log-format=json", *where, *SHAPE, *self._database, *self._tls]
        self.serve = head.run("serve", *options)
        head.await_said('"ready"', self.serve)

    def join(self) -> None:
        """The second host comes, or comes again."""
        words = ("cluster", "join", f"{self.first.address}:{self.head_port}", "--json")
        self.joined = self.second.run(*words, f"--node-ip={self.second.address}")
        self._joined += 1
        self.second.await_said('"node"', self.joined, self._joined)

    def client(self, timeout: float = 30.0) -> Client:
        return Client(self.targets[0], timeout=timeout, **self.access)

    def stop(self) -> list[int]:
        """The exit codes of the service and of the hosts that live, told to end in this order."""
        codes = []
        for process in (self.serve, self.joined, self.head):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                codes.append(process.wait(90))
        return codes


def faults(hosts: Hosts, crowd: Crowd, which: Sequence[str], say: Say) -> list[tuple[float, str]]:
    """Each of them, one after the other, and when it was: "kill" the second host, "kill amid a
    move" to more workers, of which it has some, or "cut" its cable for some leases."""
    happened: list[tuple[float, str]] = []
    for what in which:
        time.sleep(REST_S)
        asking = None
        if what == "kill amid a move":
            asking = move(hosts, say)
        elif not hosts.second.shells():
            spread(hosts, crowd, say)
        say(f"on the second host: {dict(Counter(hosts.second.shells().values()))}")
        at = time.monotonic()
        happened.append((at, what))
        say(what)
        if what == "cut":
            hosts.net.cut(1)
            time.sleep(CUT_LEASES * hosts.lease_s)
            hosts.net.cut(1, off=False)
            say("healed")
        else:
            hosts.second.kill()
        served(crowd, at)
        say(f"served again {time.monotonic() - at:.1f} s later")
        if asking is not None:
            asking.join(LIMIT_S)
            ended(hosts, crowd)
        if what != "cut" and what != which[-1]:
            hosts.join()
            say("the second host is there again")
    return happened


def move(hosts: Hosts, say: Say) -> threading.Thread:
    """Ask for two workers more; returns once parts are on their way to them, of whom the second
    host has one or both."""

    def ask() -> None:
        with contextlib.suppress(*FAILURES), hosts.client(LIMIT_S) as client:
            client.scale(client.migrations().workers + 2)

    before = Counter(hosts.second.shells().values())["worker"]
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    deadline = time.monotonic() + LIMIT_S
    with hosts.client() as client:
        while not (state := client.migrations()).following_version:
            if time.monotonic() > deadline:
                raise RuntimeError("no move began")
            time.sleep(0.01)
    after = Counter(hosts.second.shells().values())["worker"]
    say(f"a move is {state.state}; workers of the second host: {before}, now {after}")
    return asking


def ended(hosts: Hosts, crowd: Crowd) -> None:
    """Wait until no move is under way."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(*FAILURES), hosts.client() as client:
            if not client.migrations().following_version:
                return
        time.sleep(0.2)
    crowd.history.problems.append("a move has no end")


def spread(hosts: Hosts, crowd: Crowd, say: Say) -> None:
    """Have actors on the second host again: those of the first die, and find new places."""
    at = time.monotonic()
    for pid in hosts.first.shells():
        os.kill(pid, signal.SIGKILL)
    served(crowd, at)
    say(f"actors were spread anew within {time.monotonic() - at:.1f} s")


def served(crowd: Crowd, since: float) -> None:
    """Until every lane has delivered what was published later, and an update was answered."""
    history = crowd.history
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        lanes = [*history.arrivals.values(), history.updates]
        if all(any(asked >= since for asked, _ in list(lane)) for lane in lanes):
            return
        time.sleep(0.2)
    history.problems.append(f"not all is delivered {LIMIT_S:.0f} s after a fault")


def run(
    postgres: Server,
    which: Sequence[str],
    *,
    seed: int = 1,
    rate: float = 8.0,
    lease_s: float = LEASE_S,
) -> dict[str, Any]:
    """Figures as JSON takes them; "held" says whether the contract did; where it did not,
    "logs" is where they are kept."""
    say = teller()
    with contextlib.ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory("", "hosts-", "/tmp")))
        net = ending.enter_context(made(2))
        # One name of several addresses, as a DNS server would tell, whose certificate is checked.
        named = (*requests.CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", "localhost"))
        ending.enter_context(mock.patch.object(requests, "CHANNEL_OPTIONS", named))
        which = [what for what in which if net.separate or what != "cut"]
        hosts = ending.enter_context(Hosts(net, postgres, folder, lease_s))
        hosts.start()
        say(f"ready on {', '.join(net.hosts)}")
        crowd = Crowd(hosts, seed, rate)
        happened = faults(hosts, crowd, which, say)
        time.sleep(REST_S)
        verdict = settled(crowd)
        say("settled")
        with hosts.client() as client:
            status, history = client.status(), client.migrations()
        codes = hosts.stop()
        found = {
            "held": not verdict.broken and not any(codes),
            "separate": net.separate,
            "faults": [what for _, what in happened],
            "codes": codes,
            **vars(verdict),
            "recovery_s": recoveries(crowd.history, happened, []),
            "unanswered": dict(sorted(crowd.history.errors.items())),
            "hosts": net.hosts,
            "endpoints": [endpoint.partition(":")[0] for endpoint in status["endpoints"]],
            "migrations": [(m.missing, m.surplus) for m in history.migrations],
        }
        if not found["held"]:
            kept = Path(tempfile.mkdtemp(prefix="hosts-log-", dir="/tmp"))
            for path in folder.glob("host-*"):
                (kept / path.name).write_bytes(path.read_bytes())
            found["logs"] = str(kept)
        return found
