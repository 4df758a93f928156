"""Three hosts, each with actors, a database server and perhaps a broker of Kafka. Each host in turn
loses all its processes and its disk, and comes back with an empty one."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

from confluent_kafka.admin import AdminClient

from ps2stream.client import requests
from tests.chaos.recoveries import recoveries
from tests.chaos.run import Crowd, Say, settled, teller
from tests.hosts.cluster import Hosts, Shape
from tests.hosts.net import Net, made
from tests.hosts.run import keep_logs, served
from tests.support.kafka_broker import Broker, jars
from tests.support.postgres_server import USER, Server

HOSTS = 3
SHAPE = Shape(workers=2, dispatchers=2, mergers=2)
NAMES = ("a", "b", "c")
STANDBYS = "ANY 1 (a, b, c)"
"""What each server waits for when it is the primary: itself is never among its standbys."""
LIMIT_S = 400.0
REST_S = 5.0
BROKER, CONTROLLER = 9092, 9093


class Databases:
    """A PostgreSQL server on each host: one primary, which waits for one of its two standbys."""

    def __init__(self, programs: Path, net: Net, hosts: Hosts) -> None:
        self._programs, self._net, self._hosts = programs, net, hosts
        self._servers: dict[int, Server] = {}
        self.primary = 0
        for host in range(HOSTS):
            self._make(host)
        self._servers[0].await_standbys(HOSTS - 1)

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@{','.join(self._net.hosts)}/postgres"

    def _make(self, host: int) -> None:
        folder = self._hosts.machines[host].disk / "database"
        folder.mkdir()
        self._servers[host] = Server(
            self._programs, folder, self._net.hosts[host], self._net.within(host), STANDBYS,
            self._servers.get(self.primary), NAMES[host],
        )  # fmt: skip

    def kill(self, host: int) -> None:
        self._servers.pop(host).crash()

    def promote(self, lost: int) -> bool:
        """Makes a primary of the standby that has most, if the primary was lost: what an operator
        does, or Patroni. Returns whether it was."""
        if lost != self.primary:
            return False
        first, other = sorted(self._servers, key=lambda h: self._servers[h].received())[::-1]
        self.primary = first
        self._servers[first].promote()
        self._servers[other].follow(self._servers[first])
        return True

    def restore(self, host: int) -> None:
        """Makes a standby of this host, which has nothing."""
        self._make(host)
        self._servers[self.primary].await_standbys(HOSTS - 1)

    def stop(self) -> None:
        for each in self._servers.values():
            each.crash()


class Brokers:
    """A broker of Kafka on each host."""

    def __init__(self, net: Net, hosts: Hosts) -> None:
        self._net, self._hosts = net, hosts
        self._brokers: dict[int, Broker] = {}
        for host in range(HOSTS):
            self._make(host)
        for each in self._brokers.values():  # the first one listens once it knows of another
            each.wait()
        self.await_replicas()

    def _make(self, host: int) -> None:
        self._brokers[host] = Broker(
            jars(), self._hosts.machines[host].disk / "broker", host + 1,
            [f"{each}:{CONTROLLER}" for each in self._net.hosts],
            f"{self._net.hosts[host]}:{BROKER}", self._net.within(host),
        )  # fmt: skip

    @property
    def address(self) -> str:
        return ",".join(f"{each}:{BROKER}" for each in self._net.hosts)

    def kill(self, host: int) -> None:
        self._brokers.pop(host).crash()

    def restore(self, host: int) -> None:
        self._make(host)
        self._brokers[host].wait()
        self.await_replicas()

    def await_replicas(self) -> None:
        """Until all three brokers are known, and have all that was acknowledged."""
        admin, deadline = AdminClient({"bootstrap.servers": self.address}), time.monotonic() + 240
        while True:
            found = admin.list_topics(timeout=120)
            parts = [part for topic in found.topics.values() for part in topic.partitions.values()]
            if len(found.brokers) == HOSTS and all(len(part.isrs) == HOSTS for part in parts):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"the brokers are not in sync: {found.brokers}, {found.topics}")
            time.sleep(0.5)

    def stop(self) -> None:
        for each in self._brokers.values():
            each.crash()


def lose_each(
    hosts: Hosts, crowd: Crowd, databases: Databases, brokers: Brokers | None, say: Say
) -> list[tuple[float, str]]:
    """Has each host lose everything, one after the other; returns when it was, and what was there
    besides actors."""
    happened = []
    for host, machine in enumerate(hosts.machines):
        time.sleep(REST_S)
        was_head = hosts.head is machine
        what = [f"lose host {host}"]
        what += ["with Ray's head"] * was_head + ["with the primary"] * (databases.primary == host)
        say(f"{' '.join(what)}; actors: {dict(Counter(machine.shells().values()))}")
        for data in (databases, brokers):
            if data is not None:
                data.kill(host)
        machine.kill()
        machine.lose_disk()
        at = time.monotonic()
        happened.append((at, " ".join(what)))
        if databases.promote(host):
            say(f"the database of host {databases.primary} was promoted")
        if was_head:
            hosts.start_again((host + 1) % HOSTS, without=host)
            say("the service was started again")
        served(crowd, at, LIMIT_S)
        say(f"served again {time.monotonic() - at:.1f} s later")
        for data in (databases, brokers):
            if data is not None:
                data.restore(host)
        hosts.join(host)
        say(f"host {host} is there again, with an empty disk that was filled from the others")
    return happened


@contextlib.contextmanager
def deployed(
    programs: Path, kafka: bool, folder: Path, say: Say
) -> Iterator[tuple[Hosts, Databases, Brokers | None]]:
    with ExitStack() as ending:
        net = ending.enter_context(made(HOSTS))
        # One name of several addresses, as a DNS server would tell, whose certificate is checked.
        named = (*requests.CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", "localhost"))
        ending.enter_context(mock.patch.object(requests, "CHANNEL_OPTIONS", named))
        storage: list[str] = []
        options: list[str] = []
        hosts = ending.enter_context(Hosts(net, storage, folder, SHAPE, options, count=HOSTS))
        databases = Databases(programs, net, hosts)
        ending.callback(databases.stop)
        say("the databases are there")
        brokers = None
        storage += [f"--database-url={databases.url}", "--database-schema=disks"]
        if kafka:
            brokers = Brokers(net, hosts)
            ending.callback(brokers.stop)
            say("the brokers are there")
            config = folder / "librdkafka"
            config.write_text("security.protocol=PLAINTEXT\n")
            hosts.add_options(
                f"--log-url=kafka://{brokers.address}/disks", f"--log-config={config}"
            )
        hosts.start(head=1)
        say(f"ready on {', '.join(net.hosts)}")
        yield hosts, databases, brokers


def run_losses(programs: Path, kafka: bool, seed: int = 1, rate: float = 6.0) -> dict[str, Any]:
    """Figures as JSON takes them; "held" says whether the contract did. kafka: the logs are there,
    else in PostgreSQL with the rest."""
    say = teller()
    with ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory("", "disks-", "/tmp")))
        folder.chmod(0o711)  # the database server has a user of its own
        hosts, databases, brokers = ending.enter_context(deployed(programs, kafka, folder, say))
        crowd = Crowd(hosts, seed, rate)
        happened = lose_each(hosts, crowd, databases, brokers, say)
        time.sleep(REST_S)
        verdict = settled(crowd)
        say("settled")
        codes = hosts.stop()
        found = {
            **verdict,
            "held": verdict["held"] and not any(codes),
            "separate": hosts.net.separate,
            "logs": "kafka" if kafka else "postgresql",
            "losses": [what for _, what in happened],
            "codes": codes,
            "recovery_s": recoveries(crowd.history, happened, [])["all"],
            "unanswered": dict(sorted(crowd.history.errors.items())),
        }
        return found if found["held"] else found | {"logs": keep_logs(folder)}
