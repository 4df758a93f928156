"""Short runs of the benchmarks of overload: what they promise holds, whatever the speed."""

from __future__ import annotations

from ps2stream.benchmarks.bystander import run_bystander
from ps2stream.benchmarks.overload import run_overload
from ps2stream.benchmarks.stalled import run_stalled


def test_a_flood_loses_nothing_that_was_acknowledged() -> None:
    found = run_overload(
        queries=500, seconds=0.5, batch=32, streams=32, max_in_flight=2, runtime="local"
    )
    assert found["verified"]["wrong"] == 0
    refused = 0
    for level in ("durable", "none"):
        for flood in (found[level]["flood"], found[level]["calls_flood"]):
            assert flood["accepted"] > 0
            assert flood["deletes_refused"] == 0
            assert flood["delete_ms"]
            assert flood["ack_ms"]
            refused += flood["refused_batches"]
    assert refused > 0


def test_stalled_subscribers_keep_their_streams_and_others_get_everything() -> None:
    found = run_stalled(stalled=30, healthy=2, seconds=0.5, rate=400.0, burst=4, runtime="local")
    assert found["verified"]["wrong"] == 0
    assert (found["opened"], found["still_open"]) == (30, 30)
    for phase in found["healthy"].values():
        assert (phase["missing"], phase["refused"]) == (0, 0)
        assert phase["published"] > 0


def test_a_small_publisher_gets_through_beside_a_flood() -> None:
    found = run_bystander(
        "ascii", seconds=1.0, calls=4, streams=2, rest=0.0, request_bytes=500_000, runtime="local"
    )
    assert found["beside"]["published"] > 0
    assert found["flood_answers"]["OK"] > 0
    assert set(found["flood_answers"]) <= {"OK", "RETRY", "RESOURCE_EXHAUSTED", "CANCELLED"}
