"""Readers of bytes, with damaged ones: no error but the promised, no damage unnoticed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.fuzz.conftest import EXAMPLES
from tests.fuzz.damage import damaged
from tests.fuzz.readers import TARGETS

pytestmark = pytest.mark.slow


@pytest.mark.takes_turns
@pytest.mark.parametrize("name", TARGETS)
def test_damaged(name: str) -> None:
    target = TARGETS[name]
    for seed in target.seeds:
        target.run(seed)

    @settings(settings.get_profile("fuzz"), max_examples=max(1, EXAMPLES // 10))
    @given(damaged(target.seeds))
    def run(data: bytes) -> None:
        target.run(data)

    run()
