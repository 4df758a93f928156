"""Queries with more to check: what an index finds of them is what they say."""

from __future__ import annotations

import numpy as np
import pytest
import shapely

from ps2stream.benchmarks.engine import IndexEngine
from ps2stream.benchmarks.post_batches import BATCH
from ps2stream.benchmarks.variants import NO_SHARES, QueryVariants, Shares
from ps2stream.benchmarks.workload import make
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.protocol.rows import RegionShape
from ps2stream.workers.indexes import INDEXES

ANALYZER = Analyzer(Analysis(salt=1))
LOAD = make("synthetic", "q1", 8_000, 1_000, 2 * BATCH, 1, ANALYZER)
OBJECTS = ANALYZER.analyse(LOAD.posts.text_off, LOAD.posts.text)


def engine_of(shares: Shares) -> IndexEngine:
    variants = QueryVariants(LOAD, shares, ANALYZER, 1)
    return IndexEngine(variants, ANALYZER, OBJECTS, INDEXES["gi2-radix"])


@pytest.mark.takes_turns
@pytest.mark.parametrize("shares", [Shares(negated=1.0), Shares(circles=1.0), Shares(polygons=1.0),
                                    Shares(0.5, 0.4, 0.4)], ids=str)  # fmt: skip
def test_an_index_finds_what_the_variants_say(shares: Shares) -> None:
    engine = engine_of(shares)
    engine.fill()
    engine.update()
    matches = engine.round()["matches_per_object"]
    plain = engine_of(NO_SHARES)
    plain.fill()
    plain.update()
    assert 0.7 < matches / plain.round()["matches_per_object"] < 1.1
    assert engine.differences(ANALYZER, BATCH, 1) == 0
    plain.variants = engine.variants
    assert plain.differences(ANALYZER, BATCH, 1) > 0


@pytest.mark.takes_turns
def test_a_new_region_has_the_area_of_the_old_one() -> None:
    rect = LOAD.interests.rect[:200]
    area = (rect[:, 2] - rect[:, 0]) * (rect[:, 3] - rect[:, 1])
    for shares, shape in ((Shares(circles=1), "CIRCLE"), (Shares(polygons=1), "POLYGON")):
        variants = QueryVariants(LOAD, shares, ANALYZER, 1)
        box = variants.load.interests.rect[:200]
        side = (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1])
        assert (side > area).all()
        assert np.median(side / area) < 2.2
        regions = [variants._regions[q] for q in range(200)]
        assert RegionShape[shape].name in type(regions[0]).__name__.upper()
        if shape == "POLYGON":
            shapes = [r.geometry for r in regions]  # type: ignore[union-attr]
            assert shapely.is_valid(shapes).all()
            assert np.allclose(shapely.area(shapes), area)
