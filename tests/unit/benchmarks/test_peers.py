"""The work that other engines share with ours, and how their results are compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ps2stream.benchmarks.peers.alerts import OwnIndex, SavedSearches, make_searches, sum_hashes
from ps2stream.benchmarks.peers.fences import find_pairs, make_fences, run_fences, serve_fences
from ps2stream.benchmarks.peers.java import compile_peer, run_java_peer, run_passes
from ps2stream.errors import InvalidArgument

pytestmark = pytest.mark.takes_turns


@pytest.fixture(scope="module")
def searches() -> SavedSearches:
    return make_searches(3000, 1024)


def test_our_index_finds_the_pairs_of_brute_force_in_java(
    searches: SavedSearches, tmp_path: Path
) -> None:
    paths = [tmp_path / "queries.tsv", tmp_path / "objects.tsv"]
    searches.write_queries(paths[0])
    searches.write_objects(paths[1])
    here = Path(__file__).resolve().parent
    classpath = compile_peer("NaivePeer", "", None, tmp_path, here)
    (theirs,) = run_passes("NaivePeer", classpath, paths, 100, 1)
    index = OwnIndex(searches)
    for size in (1, 100, 1024):
        ours = index.run(size)
        assert (ours.matches, ours.digest) == (theirs.matches, theirs.digest)
    assert theirs.objects == 1024
    assert theirs.matches > 20


def test_another_set_of_pairs_has_another_sum() -> None:
    query, post = np.array([0, 7, 7, 1 << 30]), np.array([3, 0, 1, 5])
    found = sum_hashes(query, post)
    assert sum_hashes(query[::-1], post[::-1]) == found
    assert len({found, sum_hashes(post, query), sum_hashes(query[:3], post[:3])}) == 3
    assert sum_hashes(query[:0], post[:0]) == 0


def test_the_service_tells_of_each_fence_what_brute_force_finds() -> None:
    world = make_fences(300, 3000)
    due = find_pairs(world)
    with serve_fences(world) as server:
        for first in range(0, 3000, 1000):
            server.publish(first, first + 1000)
        server.wait_for(len(due))
        assert sorted(server.pairs) == due.tolist()
    assert len(due) > 100


def test_a_peer_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="lucene-monitor"):
        run_java_peer("lucene", tmp_path)
    with pytest.raises(InvalidArgument, match="checkout of FAST"):
        run_java_peer("fast", tmp_path)
    with pytest.raises(InvalidArgument, match="tile38"):
        run_fences(tmp_path / "tile38-server")
