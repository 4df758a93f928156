"""A service over two hosts, its clients, the faults, the verdict."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from ps2stream.client import requests
from ps2stream.cluster.roles import ROLES
from ps2stream.observability.process import is_running
from tests.chaos.moves import FAILURES
from tests.chaos.recoveries import recoveries
from tests.chaos.run import Crowd, Say, settled, teller
from tests.hosts.cluster import Hosts, Shape
from tests.hosts.net import made
from tests.support.postgres_server import Server

DISPATCHERS = 2
SHAPE = Shape(workers=2, dispatchers=DISPATCHERS, mergers=2)
LEASE_S = 6.0
CUT_LEASES = 3.3  # how long a cable is out
REST_S = 3.0  # until the next fault
STANDBY_S = 25.0  # the same, where standbys have to start
LIMIT_S = 60.0
RETURN_S = 2.0  # until the first actor goes to a host that has returned


def faults(
    hosts: Hosts, crowd: Crowd, which: Sequence[str], say: Say, lease_s: float, rest_s: float
) -> list[tuple[float, str]]:
    """Each of them, one after the other, and when it was: "kill" the second host, "kill amid a
    move" to more workers, of which it has some, "cut" its cable for some leases, or kill an actor,
    as with "kill merger"; or "return": of the second host, to which actors go."""
    happened: list[tuple[float, str]] = []
    for what in which:
        time.sleep(rest_s)
        asking = None
        if what == "return":
            await_actors(hosts, say)
            continue
        if what == "kill amid a move":
            asking = move(hosts, say)
        elif not hosts.second.shells():
            spread(hosts, crowd, say)
        say(f"on the second host: {dict(Counter(hosts.second.shells().values()))}")
        say(what)
        if what == "cut":
            hosts.net.cut(1)
        elif (role := what.removeprefix("kill ")) in ROLES:
            kill_actor(hosts, role)
        else:
            hosts.second.kill()
        at = time.monotonic()
        happened.append((at, what))
        if what == "cut":
            time.sleep(CUT_LEASES * lease_s)
            hosts.net.cut(1, off=False)
            say("healed")
        served(crowd, at)
        say(f"served again {time.monotonic() - at:.1f} s later")
        if not any(hosts.second.pids()):
            with hosts.client() as client:
                endpoints = client.status()["endpoints"]
            if any(hosts.second.address in endpoint for endpoint in endpoints):
                crowd.history.recorder.complain("faults", f"a dead host is named: {endpoints}")
        if asking is not None:
            asking.join(LIMIT_S)
            ended(hosts, crowd)
        if what != which[-1] and not any(hosts.second.pids()):
            hosts.join()
            say("the second host is there again")
    return happened


def await_actors(hosts: Hosts, say: Say) -> None:
    """Waits until the second host, which is there again, has a dispatcher, which goes after a
    worker and a merger. Raises RuntimeError."""
    begun, limit = time.monotonic(), 5 * LIMIT_S
    endpoints: list[str] = []
    while not any(hosts.second.address in endpoint for endpoint in endpoints):
        if time.monotonic() - begun > limit:
            raise RuntimeError(f"{limit:.0f} s after a host returned, dispatchers are {endpoints}")
        time.sleep(0.2)
        with contextlib.suppress(*FAILURES), hosts.client() as client:
            endpoints = client.status()["endpoints"]
    say(f"actors went to the second host within {time.monotonic() - begun:.0f} s")


def kill_actor(hosts: Hosts, role: str) -> None:
    """kill -9 of one of this role, of the second host if it has any; returns once it is gone."""
    found = [
        pid
        for each in (hosts.second, hosts.first)
        for pid, of in each.shells().items()
        if of == role
    ]
    os.kill(found[0], signal.SIGKILL)
    while is_running(found[0]):
        time.sleep(0.002)


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
    crowd.history.recorder.complain("faults", "a move has no end")


def spread(hosts: Hosts, crowd: Crowd, say: Say) -> None:
    """Have actors on the second host again: those of the first die, and find new places."""
    at = time.monotonic()
    for pid in hosts.first.shells():
        os.kill(pid, signal.SIGKILL)
    served(crowd, at)
    say(f"actors were spread anew within {time.monotonic() - at:.1f} s")


def served(crowd: Crowd, since: float, limit_s: float = LIMIT_S) -> None:
    """Until every lane has delivered what was published later, and an update was answered."""
    history = crowd.history
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        lanes = [*history.arrivals.values(), history.updates]
        if all(any(asked >= since for asked, _ in list(lane)) for lane in lanes):
            return
        time.sleep(0.2)
    history.recorder.complain("faults", f"not all is delivered {limit_s:.0f} s after a fault")


def run(
    postgres: Server,
    which: Sequence[str],
    *,
    seed: int = 1,
    rate: float = 8.0,
    lease_s: float = LEASE_S,
    standbys: int = 0,
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
        storage = [f"--database-url={postgres.url}", "--database-schema=hosts"]
        spread_s = RETURN_S if "return" in which else 0.0
        options = [f"--lease-s={lease_s}", f"--standbys={standbys}", f"--spread-s={spread_s}"]
        hosts = ending.enter_context(Hosts(net, storage, folder, SHAPE, options))
        hosts.start()
        say(f"ready on {', '.join(net.hosts)}")
        crowd = Crowd(hosts, seed, rate)
        happened = faults(hosts, crowd, which, say, lease_s, STANDBY_S if standbys else REST_S)
        time.sleep(REST_S)
        verdict = settled(crowd)
        say("settled")
        with hosts.client() as client:
            status, history = client.status(), client.migrations()
        codes = hosts.stop()
        found = {
            **verdict,
            "held": verdict["held"] and not any(codes),
            "separate": net.separate,
            "faults": [what for _, what in happened],
            "codes": codes,
            "recovery_s": recoveries(crowd.history, happened, []),
            "unanswered": dict(sorted(crowd.history.errors.items())),
            "hosts": net.hosts,
            "endpoints": [endpoint.partition(":")[0] for endpoint in status["endpoints"]],
            "migrations": [(m.missing, m.surplus) for m in history.migrations],
        }
        if not found["held"]:
            found["logs"] = keep_logs(folder)
        return found


def keep_logs(folder: Path) -> str:
    """Copies what the hosts have said to a folder that stays, and returns it."""
    kept = Path(tempfile.mkdtemp(prefix="hosts-log-", dir="/tmp"))
    for path in folder.glob("host-*"):
        (kept / path.name).write_bytes(path.read_bytes())
    return str(kept)
