"""Prefixes of one broker, each with topics of its own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from ps2stream.store.kafka_cluster import KafkaAdmin, KafkaCluster
from tests.support.kafka_broker import Broker, Cluster, cluster

_numbers = itertools.count(1)


@pytest.fixture
def url(kafka: Broker) -> str:
    """A `log_url` that nobody has used, for development."""
    return f"kafka://{kafka.address}/tests-{os.getpid()}-{next(_numbers)}?development=true"


@pytest.fixture
def topics(url: str) -> Iterator[KafkaCluster]:
    """The cluster at `url`; its topics are removed in the end."""
    found = KafkaCluster.parse(url)
    yield found
    admin = KafkaAdmin(found)
    if names := admin.list_logs():
        admin.delete_topics(names)


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    """Three brokers."""
    with cluster() as found:
        yield found
