"""Addresses of dispatchers are read as users write them."""

from __future__ import annotations

import pytest

from ps2stream.client.targets import split_target
from ps2stream.errors import InvalidArgument


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("localhost:7077", ("localhost:7077",)),
        ("unix:/tmp/a", ("unix:/tmp/a",)),
        ("a:1, b:2,a:1 ", ("a:1", "b:2")),
        ("[::1]:7,10.0.0.1:8", ("[::1]:7", "10.0.0.1:8")),
    ],
)
def test_addresses_are_listed_once_each(target: str, found: tuple[str, ...]) -> None:
    assert split_target(target) == found


@pytest.mark.parametrize("target", ["", ",", "a:1,,b:2", "a:1,", None, 7])
def test_what_names_no_dispatcher_is_refused(target: str) -> None:
    with pytest.raises(InvalidArgument, match="target: expected"):
        split_target(target)


def test_there_is_a_limit() -> None:
    assert len(split_target(",".join(f"h:{i}" for i in range(64)))) == 64
    with pytest.raises(InvalidArgument, match="target: 65 addresses; 64 is the limit"):
        split_target(",".join(f"h:{i}" for i in range(65)))
