"""The bytes that are on their way to each dispatcher."""

from __future__ import annotations

from ps2stream.merger.under_way import PATIENCE, DeliveryAllowance


def test_what_is_on_its_way_to_another_incarnation_is_counted_anew() -> None:
    under_way = DeliveryAllowance(10)
    under_way.sent(0, 10)
    under_way.arrived(0, 10)
    under_way.left(0)
    under_way.sent(0, 10)
    assert not under_way.room(0)
    under_way.arrived(0, 10)  # of all that this one has got
    assert under_way.room(0)


def test_one_delivery_may_exceed_the_limit_and_none_follows() -> None:
    under_way = DeliveryAllowance(10)
    under_way.sent(0, 9)
    assert under_way.room(0)
    under_way.sent(0, 500)
    assert not under_way.room(0)
    assert under_way.room(1), "each dispatcher has its own"
    under_way.arrived(0, 499)
    assert not under_way.room(0)
    under_way.arrived(0, 500)
    assert under_way.room(0)


def test_an_old_report_says_nothing() -> None:
    under_way = DeliveryAllowance(10)
    under_way.sent(0, 30)
    under_way.arrived(0, 20)
    under_way.arrived(0, 5)
    under_way.arrived(0, 20)
    assert not under_way.room(0)


def test_bytes_that_nobody_reports_are_given_up_after_a_while() -> None:
    under_way = DeliveryAllowance(10)
    under_way.sent(0, 10)
    under_way.sent(1, 10)
    for _ in range(PATIENCE - 1):
        assert under_way.tick() == set()
    under_way.arrived(1, 1)
    assert under_way.tick() == {0}
    assert under_way.room(0)
    for _ in range(PATIENCE - 2):
        assert under_way.tick() == set()
    assert under_way.tick() == {1}
