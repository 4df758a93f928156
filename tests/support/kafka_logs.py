"""Logs in Kafka as tests use them, and a service that has its logs there."""

from __future__ import annotations

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from ps2stream.cluster.local_service import LocalService
from ps2stream.cluster.service import fitted_plan, topology_of
from ps2stream.config import Settings
from ps2stream.store.kafka_log import KafkaLog

NAME = "objects-0"
ROW = {"id": "o", "text": "a word", "lon": 1.0, "lat": 2.0}


def fill(log: KafkaLog, *records: bytes) -> list[int]:
    found = [log.append(record) for record in records]
    log.sync()
    return found


def records(log: KafkaLog) -> list[bytes]:
    return [record for _, record in log.scan()]


def change(admin: AdminClient, topic: str, **config: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)


def start(settings: Settings, accept_loss: bool = False) -> LocalService:
    """As cluster.service.start, without the rehearsal of kernels."""
    return LocalService(settings, topology_of(settings, fitted_plan(settings, None)), accept_loss)
