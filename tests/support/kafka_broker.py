"""Kafka brokers of the tests' own, one or three, in KRaft mode, from Maven Central."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.certificates import Authority

VERSION = "4.3.1"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>tests</groupId><artifactId>broker</artifactId>
<version>1</version><dependencies><dependency><groupId>org.apache.kafka</groupId>
<artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency></dependencies>
</project>"""
PASSWORD = "only-for-tests"
LIMITED = "logs"
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


def jars() -> Path:
    """The folder of the broker's jars, fetched once a virtual environment; skipped loudly where
    that cannot be."""
    folder = Path(sys.prefix) / f"kafka-{VERSION}"
    if folder.is_dir():
        return folder
    if not (shutil.which("mvn") and shutil.which("java")):
        pytest.skip("there is no Maven here, to fetch Kafka with (Debian: apt-get install maven)")
    with tempfile.TemporaryDirectory(dir=sys.prefix) as name:
        work = Path(name)
        (work / "pom.xml").write_text(_POM)
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        try:
            done = subprocess.run(
                [*command, f"-DoutputDirectory={work / 'jars'}"],
                cwd=work, capture_output=True, text=True, check=False, timeout=240,
            )  # fmt: skip
            said = done.stdout[-500:] if done.returncode else ""
        except subprocess.TimeoutExpired:
            said = "no answer in 240 s"
        if said:
            pytest.skip(f"Maven could not fetch Kafka {VERSION}: {said}")
        with contextlib.suppress(OSError):  # another process of the tests was first
            (work / "jars").rename(folder)
    return folder


class Broker:
    """Stops, crashes and starts again at the same address, over the same data. At `secure` it
    speaks TLS and asks for a password, as the properties `librdkafka` have it. The user LIMITED, of
    the same password, has no rights but those that it is given."""

    def __init__(
        self,
        jars: Path,
        folder: Path,
        node: int = 1,
        controllers: Sequence[str] = (),
        address: str = "",
        within: Sequence[str] = (),
        authority: Authority | None = None,
    ) -> None:
        """Node `node` of a cluster whose controllers have these addresses, of one by default.
        address: where it listens; within: what the command begins with, of a host of its own;
        authority: what signs its certificate, by default one of its own."""
        self._java = ["java", *_JVM, "-cp", f"{jars}/*"]
        self._within = within
        self.folder = folder
        folder.mkdir(exist_ok=True)
        secure = free_port()
        controllers = controllers or [f"127.0.0.1:{free_port()}"]
        controller = controllers[node - 1]
        alone = len(controllers) == 1
        voters = ",".join(f"{i}@{at}" for i, at in enumerate(controllers, 1))
        quorum = (
            f"controller.quorum.bootstrap.servers={controller}"
            if alone
            else f"controller.quorum.voters={voters}"
        )
        copies, in_sync = (1, 1) if alone else (3, 2)
        self.secure = f"localhost:{secure}"
        authority = authority or Authority(folder)
        pair = authority.issue("broker", file=f"broker-{node}")
        (folder / "keystore.pem").write_bytes(pair.key.read_bytes() + pair.cert.read_bytes())
        self.librdkafka = folder / "librdkafka"
        self.librdkafka.write_text(
            f"""security.protocol=SASL_SSL
ssl.ca.location={authority.ca}
sasl.mechanism=PLAIN
sasl.username=feed
sasl.password={PASSWORD}
"""
        )
        self.address = address or f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None
        self._config = folder / "server.properties"
        users = f'user_feed="{PASSWORD}" user_{LIMITED}="{PASSWORD}"'
        self._config.write_text(
            f"""process.roles=broker,controller
node.id={node}
{quorum}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{self.address},SECURE://{self.secure},CONTROLLER://{controller}
advertised.listeners=PLAINTEXT://{self.address},SECURE://{self.secure}
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={folder / "keystore.pem"}
listener.name.secure.sasl.enabled.mechanisms=PLAIN
listener.name.secure.plain.sasl.jaas.config={_LOGIN} required {users};
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:feed
log.dirs={folder / "data"}
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
offsets.topic.num.partitions=1
offsets.topic.replication.factor={copies}
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor={copies}
transaction.state.log.min.isr={in_sync}
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
log.initial.task.delay.ms=100
log.retention.check.interval.ms=200
"""
        )
        words = ["format", "-t", "abcdefghijklmnopqrstuv", "-c", str(self._config)]
        subprocess.run(
            [*self._java, "kafka.tools.StorageTool", *words, *["--standalone"][: int(alone)]],
            check=True,
            capture_output=True,
        )
        self.launch()
        if alone:  # of several, the first waits for the second
            self.wait()

    def start(self) -> None:
        self.launch()
        self.wait()

    def launch(self) -> None:
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._within, *self._java, "kafka.Kafka", str(self._config)],
                stdout=log, stderr=log,
            )  # fmt: skip

    def wait(self) -> None:
        """Until it listens."""
        assert self._process is not None
        deadline = time.monotonic() + 300
        host, _, port = self.address.partition(":")
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection((host, int(port))).close()
                break
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self.folder / "broker.log").read_text()[-2000:]
                raise RuntimeError(f"Kafka did not start: {said}")
            time.sleep(0.05)

    def stop(self, how: int = signal.SIGTERM) -> None:
        """SIGTERM: in order; SIGKILL: as a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    @property
    def pids(self) -> list[int]:
        """Its process."""
        assert self._process is not None
        return [self._process.pid]

    def crash(self) -> None:
        """kill -9."""
        self.stop(signal.SIGKILL)

    def create(self, *topics: str, partitions: int = 1) -> None:
        # A broker that listens is not always one that answers yet, which librdkafka waits for.
        admin = AdminClient({"bootstrap.servers": self.address})
        for made in admin.create_topics([NewTopic(t, partitions, 1) for t in topics]).values():
            made.result(60)

    def produce(self, topic: str, values: list[bytes | None]) -> None:
        """One after the other, over all partitions."""
        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 20})
        partitions = len(producer.list_topics(topic, 30).topics[topic].partitions)
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=number % partitions)
            if number % 1000 == 0:
                producer.poll(0)
        assert producer.flush(60) == 0

    def read(self, topic: str, **config: Any) -> list[Any]:
        """All messages that are there now."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                **config,
            }
        )
        left = set(consumer.list_topics(topic, 30).topics[topic].partitions)
        # Without a group, which takes a second to form.
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in left])
        found = []
        while left:
            for message in consumer.consume(1000, 0.05):
                if (error := message.error()) is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
        consumer.close()
        return found

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The next offset of each partition that the group has dealt with."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group})
        parts = consumer.list_topics(topic, 30).topics[topic].partitions
        found = consumer.committed([TopicPartition(topic, p) for p in parts], 30)
        consumer.close()
        return {tp.partition: tp.offset for tp in found}


class Cluster:
    """Three brokers, each with a controller."""

    def __init__(self, jars: Path, folder: Path) -> None:
        controllers = [f"127.0.0.1:{free_port()}" for _ in range(3)]
        self.brokers: list[Broker] = []
        self._authority = Authority(folder)
        try:
            for node in (1, 2, 3):
                made = Broker(
                    jars, folder / f"{node}", node, controllers, authority=self._authority
                )
                self.brokers.append(made)
            for each in self.brokers:
                each.wait()
            self.wait()
        except BaseException:
            self.kill()
            raise

    @property
    def address(self) -> str:
        return ",".join(each.address for each in self.brokers)

    @property
    def secure(self) -> str:
        return ",".join(each.secure for each in self.brokers)

    def write_config(self, file: Path, user: str, password: str = PASSWORD) -> Path:
        """Writes the properties by which this user reaches the brokers at `secure`."""
        file.write_text(
            f"security.protocol=SASL_SSL\nssl.ca.location={self._authority.ca}\nsasl.mechanism=PLAIN\n"
            f"sasl.username={user}\nsasl.password={password}\n"
        )
        return file

    def wait(self) -> None:
        """Until all three are known."""
        admin, deadline = AdminClient({"bootstrap.servers": self.address}), time.monotonic() + 120
        while len(admin.list_topics(timeout=60).brokers) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def leader(self, topic: str) -> Broker:
        """The broker that leads the topic's only partition."""
        admin = AdminClient({"bootstrap.servers": self.address})
        return self.brokers[admin.list_topics(topic, 30).topics[topic].partitions[0].leader - 1]

    def kill(self) -> None:
        for each in self.brokers:
            each.stop(signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def broker() -> Iterator[Broker]:
    with _new_folder() as folder:
        found = Broker(jars(), folder)
        try:
            yield found
        finally:
            found.stop(signal.SIGKILL)


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    with _new_folder() as folder:
        found = Cluster(jars(), folder)
        try:
            yield found
        finally:
            found.kill()


@contextlib.contextmanager
def _new_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="ps2s-kafka-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
