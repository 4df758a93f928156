"""The bytes that are on their way to each dispatcher."""

from __future__ import annotations

from ps2stream.merger.under_way import DeliveryAllowance


def test_what_is_on_its_way_to_another_incarnation_is_counted_anew() -> None:
    under_way = DeliveryAllowance(10)
    under_way.sent(0, 10)
    under_way.arrived(0, 10)
    under_way.left(0)
    under_way.sent(0, 10)
    assert not under_way.room(0)
    under_way.arrived(0, 10)  # of all that this one has got
    assert under_way.room(0)
