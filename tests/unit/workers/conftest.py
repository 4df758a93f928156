"""The indexes that a worker may hold its queries in."""

from __future__ import annotations

import pytest

from ps2stream.workers.indexes import INDEX_NAMES, INDEXES, IndexFactory


@pytest.fixture(params=INDEX_NAMES)
def new_index(request: pytest.FixtureRequest) -> IndexFactory:
    """Each of them in its turn."""
    return INDEXES[request.param]
