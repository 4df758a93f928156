"""The clock that charges CPU time to steps."""

from __future__ import annotations

import time

import pytest

from ps2stream.benchmarks.step_clock import StepClock, watch_all


class SpinningMachine:
    """A machine whose methods take CPU time."""

    def outer(self) -> str:
        spin(10)
        self.inner()
        return "done"

    def inner(self) -> None:
        spin(20)


class DerivedMachine(SpinningMachine):
    """A class that inherits what is watched."""


def spin(milliseconds: float) -> None:
    until = time.thread_time() + milliseconds / 1e3
    while time.thread_time() < until:
        pass


def test_a_step_within_another_takes_its_time_from_that() -> None:
    clock = StepClock()
    with watch_all(clock, [(SpinningMachine, "inner", "inner")]):
        with clock.step("outer"):
            assert SpinningMachine().outer() == "done"
        spin(30)  # which belongs to no step
        found = clock.take()
    assert list(found) == ["outer", "inner"]
    assert 10e6 <= found["outer"].cpu_ns < 15e6
    assert 20e6 <= found["inner"].cpu_ns < 25e6
    assert clock.take() == {}


def test_a_thread_that_waits_costs_nothing() -> None:
    clock = StepClock()
    with clock.step("wait"):
        time.sleep(0.05)
    assert clock.take()["wait"].cpu_ns < 10e6


def test_calls_are_counted_by_step_without_those_of_the_clock() -> None:
    clock = StepClock()
    with watch_all(clock, [(SpinningMachine, "inner", "inner")]), clock.count_calls():
        with clock.step("outer"):
            SpinningMachine().outer()
        spin(1)
    found = clock.take()
    assert found["outer"].calls == 2  # `outer` and `spin`
    assert found["inner"].calls == 2


def test_the_methods_are_as_before_afterwards() -> None:
    clock, before = StepClock(), SpinningMachine.inner
    watches = [(DerivedMachine, "inner", "inner")]
    with pytest.raises(ZeroDivisionError), watch_all(clock, watches), clock.step("outer"):
        raise ZeroDivisionError
    assert DerivedMachine.inner is before
    assert "inner" not in vars(DerivedMachine)


def test_a_method_that_there_is_not_is_an_error() -> None:
    clock = StepClock()
    with (
        pytest.raises(AttributeError, match="renamed"),
        watch_all(clock, [(SpinningMachine, "renamed", "step")]),
    ):
        pass
