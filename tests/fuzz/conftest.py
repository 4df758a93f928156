"""How much: FUZZ_EXAMPLES; 4,000 unless it says otherwise, and a quarter of that in CI."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.support.shortening import IS_SHORT

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "1000" if IS_SHORT else "4000"))
settings.register_profile(
    "fuzz",
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
