"""Names under tenants, columns of them, and the rates that they may publish at."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream import tenants
from ps2stream.merger.names import QueryNames
from ps2stream.protocol.frame import column_to_strings, strings_to_column
from ps2stream.security import QuotaTable, TenantQuota
from ps2stream.service.admission import TokenBucket

NAME = st.text(st.characters(min_codepoint=1, codec="utf-8"), max_size=9)
TENANT = st.from_regex(r"[A-Za-z0-9._-]{0,5}", fullmatch=True)


@given(TENANT, st.lists(NAME), st.integers(0, 3))
def test_columns_go_under_a_tenant_and_back(tenant: str, names: list[str], skip: int) -> None:
    off, data = strings_to_column(["x" * skip, *names])
    off = off[1:]
    kept_off, kept = tenants.column_under(tenant, (off, data) if skip else strings_to_column(names))
    shown = column_to_strings(kept_off, kept)
    assert shown == [f"{tenant}\0{n}" if tenant else n for n in names]
    assert tenants.own(shown) == names
    assert {tenants.key_of(n.encode()) for n in shown} <= {tenants.key(tenant)}
    start = tenants.own_start(kept_off, kept)
    ends = kept_off[1:]
    spans = zip(start.tolist(), ends.tolist(), strict=True)
    assert [kept[a:b].tobytes().decode() for a, b in spans] == names


def test_the_merger_names_queries_as_their_clients_do() -> None:
    names = QueryNames()
    names.add(np.array([1, 2]), *strings_to_column(["acme\0q", "q"]))
    names.add(np.array([5]), *strings_to_column(["zeta\0ü"]))
    handles = np.array([5, 1, 2])
    assert column_to_strings(*names.of(handles)) == ["ü", "q", "q"]


def test_a_tenants_own_table_goes_over_the_default() -> None:
    quotas = QuotaTable(
        by_tenant={"default": TenantQuota(queries=5, streams=2), "a": TenantQuota(queries=9)}
    )
    assert quotas.of("a") == TenantQuota(queries=9, streams=2)
    assert quotas.of("b") == quotas.of("") == TenantQuota(queries=5, streams=2)
    assert not QuotaTable().limited


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 50)), max_size=60))
def test_a_bucket_keeps_the_rate(steps: list[tuple[int, int]]) -> None:
    now, rate, passed, largest = 0, 10, 0, 0
    bucket = TokenBucket(rate, now)
    for pause, amount in steps:
        now += pause
        if wait := bucket.wait_ms(now):
            later = copy.copy(bucket)
            now += wait
            assert later.wait_ms(now) == 0, "it is open when it said"
            now -= wait
        else:
            bucket.take(amount)
            passed, largest = passed + amount, max(largest, amount)
        assert passed <= rate * (1 + now / 1000) + largest


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(10, 10_000)
    bucket.take(20)
    assert bucket.wait_ms(0) == pytest.approx(1001)
