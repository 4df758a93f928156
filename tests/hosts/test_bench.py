"""The benchmark of hosts: a short run, and what it reads of the system."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.run import teller
from tests.hosts.bench import COLUMNS, SetUp, run_hosts, write_table
from tests.hosts.counters import CLIENTS, Endpoint, Traffic, bytes_between, parse_connections
from tests.support.postgres_server import installed

CONNECTIONS = """\
0 0 10.0.0.1:7077 10.0.0.9:555 users:(("ray::D",pid=11,fd=9)) bytes_sent:5 bytes_received:70
0 0 [::ffff:10.0.0.1]:81 [::ffff:10.0.0.2]:91 users:(("ray::D",pid=11,fd=8)) bytes_sent:40
0 0 10.0.0.2:91 10.0.0.1:81 users:(("ray::W",pid=12,fd=3)) bytes_sent:3 bytes_received:40
0 0 10.0.0.2:92 10.0.0.2:93 users:(("ray::W",pid=12,fd=4)) bytes_sent:1000
0 0 10.0.0.2:94 10.0.0.1:22 users:(("sshd",pid=13,fd=4)) bytes_sent:1000
"""


def test_bytes_between_hosts_are_counted_once_and_by_the_roles_of_both_ends() -> None:
    now = dict(parse_connections(CONNECTIONS, {11: "dispatcher", 12: "worker"}))
    before = {(Endpoint("10.0.0.2", "91"), Endpoint("10.0.0.1", "81")): Traffic("worker", 1, 30)}
    assert bytes_between(before, now) == {
        f"dispatcher > {CLIENTS}": 5,
        f"{CLIENTS} > dispatcher": 70,
        "dispatcher > worker": 40,
        "worker > dispatcher": 2,
    }


@pytest.mark.parametrize(
    ("setup", "roles"),
    [
        (SetUp(1, 2), ["dispatcher,sequencer,controller,merger,worker=2"]),
        (SetUp(2, 2), ["dispatcher,sequencer,controller", "merger,worker=2"]),
        (SetUp(3, 3), ["dispatcher,sequencer,controller", "worker=2", "merger,worker=1"]),
        (SetUp(4, 1), ["dispatcher,sequencer,controller", "worker=1", "none", "merger"]),
    ],
)
def test_the_hosts_offer_each_role_as_often_as_it_is_needed(setup: SetUp, roles: list[str]) -> None:
    assert setup.roles() == roles


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.repeats("tests/hosts/test_hosts.py", "tests/unit/benchmarks/test_pipeline.py")
def test_a_short_run_over_two_hosts() -> None:
    programs: Path | None = installed()
    if programs is None:
        pytest.skip("there is no PostgreSQL here")
    found = run_hosts([SetUp(2, 1)], 2_000, None, 0.5, programs, teller())
    assert found["held"]
    [run] = found["runs"]
    assert run["setup"]["actors"] == [
        {"dispatcher": 1, "sequencer": 1, "controller": 1}, {"worker": 1, "merger": 1}
    ]  # fmt: skip
    summary = run["summary"]
    assert summary["objects_per_second"] > 0
    assert all(
        summary["cpu_us_per_tuple"][role] > 0 for role in ("dispatcher", "worker", "PostgreSQL")
    )
    sent = summary["payload_bytes_per_tuple"]
    assert sent["dispatcher > worker"] > 20
    assert sent["dispatcher > PostgreSQL"] > 20
    if found["settings"]["separate"]:
        assert summary["wire_bytes_per_tuple"] > sum(sent.values()) / 2
    assert summary["wal_bytes_per_tuple"] > 20
    *_, row = write_table(found).splitlines()
    assert len(row.split(" | ")) == len(COLUMNS)
