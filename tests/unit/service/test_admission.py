"""Admission of publications: one budget, fair shares of it, turns, and small ones first."""

from __future__ import annotations

import random

import pytest

from ps2stream.config import Settings
from ps2stream.errors import OverQuota
from ps2stream.limits import BATCH_BYTES
from ps2stream.security import TenantQuota
from ps2stream.service.admission import (
    SMALL_BYTES,
    AdmissionTicket,
    ByteShares,
    FairAdmission,
    PublishAdmission,
    PublishRates,
    RefusalPace,
)

MIB = 1 << 20
LARGE = 3_900_000


def admitted(
    admission: FairAdmission | PublishAdmission, caller: str, size_bytes: int
) -> AdmissionTicket:
    ticket = admission.request(caller, size_bytes)
    assert ticket is not None
    assert ticket.admitted
    return ticket


def test_one_caller_has_half_and_leaves_room_for_others() -> None:
    shares = ByteShares(100)
    shares.take("a", 50)
    assert not shares.fits("a", 1)
    assert shares.fits("b", 25)
    shares.take("b", 25)
    assert not shares.fits("b", 1)
    assert shares.fits("c", 12)
    shares.give_back("a", 50)
    assert shares.fits("a", 37)


def test_the_smallest_budget_admits_two_batches_of_the_largest_size() -> None:
    least = Settings.model_json_schema()["properties"]["intake_bytes"]["minimum"]
    admission = PublishAdmission(least, turns=4)
    for caller in ("a", "b"):
        admission.leave(admitted(admission, caller, BATCH_BYTES))
    admitted(admission, "a", BATCH_BYTES)
    admitted(admission, "b", BATCH_BYTES // 2)


def test_small_publications_pass_a_flood_of_large_ones() -> None:
    admission = PublishAdmission(16 * MIB, turns=2)
    flood = [admission.request(f"peer {i}", LARGE) for i in range(64)]
    assert sum(t is not None and t.admitted for t in flood) == 1  # turns
    assert None in flood  # and not all others may wait
    assert admitted(admission, "small", 1000).working
    while any(t.working for t in flood if t):  # until the budget is full
        for ticket in flood:
            if ticket is not None and ticket.working:
                admission.end_turn(ticket)
    assert sum(t is not None and t.admitted for t in flood) > 1
    for _ in range(100):
        admission.leave(admitted(admission, "small", SMALL_BYTES))


def test_what_waits_is_admitted_by_the_bytes_that_its_caller_had() -> None:
    admission = FairAdmission(64 * MIB, turns=1)
    first = admitted(admission, "x", LARGE)
    greedy = [admission.request("greedy", MIB) for _ in range(8)]
    modest = [admission.request("modest", MIB) for _ in range(3)]
    order: list[str] = []
    entered = admission.end_turn(first)
    while entered:
        [ticket] = entered
        order.append(str(ticket.caller))
        entered = admission.leave(ticket)
    assert None not in greedy + modest
    assert order == ["greedy", "modest"] * 3 + ["greedy"] * 5


def test_who_gives_up_waiting_keeps_its_share() -> None:
    admission = FairAdmission(64 * MIB, turns=1)
    current = admitted(admission, "x", LARGE)
    waiting: dict[str, list[AdmissionTicket]] = {"patient": [], "hasty": []}
    served = dict.fromkeys(waiting, 0)
    for _ in range(100):
        for caller, tickets in waiting.items():
            for _ in range(12):  # more than may wait
                ticket = admission.request(caller, LARGE)
                tickets += [] if ticket is None else [ticket]
            if caller == "hasty":
                for ticket in tickets[:-2]:
                    admission.leave(ticket)
                del tickets[:-2]
        [current] = admission.leave(current)
        served[str(current.caller)] += 1
        waiting[str(current.caller)].remove(current)
    assert served == {"patient": 50, "hasty": 50}


def test_publications_of_no_bytes_take_and_give_back_turns() -> None:
    admission = FairAdmission(MIB, turns=2)
    tickets = [admission.request("nothing", 0) for _ in range(4)]
    for ticket in tickets:
        assert ticket is not None
        admission.leave(ticket)
    assert (admission.held.free_bytes, admission.waiting.free_bytes) == (MIB, 2 * MIB)
    assert (len(admission), admission._working, admission._finish) == (0, 0, {})


def test_a_large_publication_is_not_starved_by_small_ones() -> None:
    admission = FairAdmission(32 * MIB, turns=1000)
    held = []
    for i in range(250):
        ticket = admission.request(f"small {i}", SMALL_BYTES)
        if ticket is not None and ticket.admitted:
            held.append(ticket)
    large = admission.request("large", BATCH_BYTES)
    assert large is not None
    assert len(admission)
    given_back = 0
    while len(admission) and not large.admitted:
        admission.leave(held.pop(0))
        given_back += 1
        late = admission.request(f"late {given_back}", SMALL_BYTES)
        if late is not None and late.admitted:
            held.append(late)
    assert given_back < 200


def test_nothing_is_held_once_all_have_left() -> None:
    rng = random.Random(5)
    admission = FairAdmission(32 * MIB, turns=3)
    tickets: list[AdmissionTicket] = []
    for _ in range(3000):
        if rng.random() < 0.55:
            size = rng.choice((100, 50_000, MIB, BATCH_BYTES))
            ticket = admission.request(rng.randrange(6), size)
            tickets += [] if ticket is None else [ticket]
        elif tickets:
            ticket = tickets.pop(rng.randrange(len(tickets)))
            if ticket.working and rng.random() < 0.5:
                admission.end_turn(ticket)
                tickets.append(ticket)
            else:
                admission.leave(ticket)
                admission.leave(ticket)  # once is enough
        held = [t for t in tickets if t.admitted]
        assert admission.held.free_bytes == 32 * MIB - sum(t.size_bytes for t in held) >= 0
        assert sum(t.working for t in held) <= 3
        assert len(admission) == len(tickets) - len(held)
    for ticket in tickets:
        admission.leave(ticket)
    assert (admission.held.free_bytes, admission.waiting.free_bytes) == (32 * MIB, 64 * MIB)
    assert (len(admission), admission._working, admission._finish) == (0, 0, {})


def test_a_refused_batch_counts_in_no_rate() -> None:
    rates = PublishRates(TenantQuota(objects_per_s=100, bytes_per_s=10_000), lambda: 1, 0)
    rates.take(100, 500, 0)
    with pytest.raises(OverQuota, match="objects_per_s"):
        rates.take(1, 1, 0)
    with pytest.raises(OverQuota, match="objects_per_s"):
        rates.check(0)
    rates.check(1)
    rates.take(1, 10_000, 1)
    with pytest.raises(OverQuota, match="bytes_per_s"):
        rates.check(100)


def test_while_what_is_routed_waits_only_small_ones_enter() -> None:
    admission = PublishAdmission(16 * MIB, turns=2)
    assert admission.set_congested(True) == []
    large = admission.request("large", LARGE)
    assert large is not None
    assert not large.admitted
    for _ in range(3):
        admission.leave(admitted(admission, "small", SMALL_BYTES))
    assert admission.set_congested(False) == [large]


def test_refusals_wait_for_the_bytes_of_all_that_are_refused() -> None:
    pace = RefusalPace(1000, most_s=5.0)
    assert pace.begin(100) == 0.1
    assert pace.begin(1000) == 2.0
    assert pace.begin(1) == 0.003
    assert pace.begin(10_000) == 5.0
    for _ in range(4):
        pace.end()
    assert pace.begin(100) == 0.1
