"""The last stage of matching decides by itself: candidates of a twin that filters nothing."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.protocol.rows import ExpressionForm
from ps2stream.workers import layout as kl
from ps2stream.workers.arrays import MatchBuffers, MatchedObjects
from ps2stream.workers.gi2 import GI2
from ps2stream.workers.index import ALL_TERMS
from ps2stream.workers.verify_kernels import satisfies_expression, verify_candidates
from tests.support.postings import GRID, VOCABULARY, Query, cell_of, columns, objects, random_query


def candidates(index: GI2, batch: MatchedObjects) -> list[tuple[int, int, int, int]]:
    """Every posting under a unit of an object that has keywords with the right halves."""
    arrays, out, runs = index._arrays, [], {}
    for bucket in arrays.table.tolist():
        for term, word in zip(bucket[: kl.BUCKET], bucket[kl.BUCKET :], strict=True):
            if word:
                runs[word >> 32, term] = word & 0xFFFFFFFF
    for o in range(len(batch.lon)):
        terms = batch.term[batch.term_off[o] : batch.term_off[o + 1]].tolist()
        place = {t >> 32: i + 1 for i, t in enumerate(terms)}
        for own, term in enumerate(terms, 1):
            for level in range(4):
                cell = level << 28 | cell_of(float(batch.lon[o]), float(batch.lat[o]), level)
                at = runs.get((cell, term), 0)
                length = int(arrays.runs[at]) & kl.LEN_MASK if at else 0
                for i in range(length):
                    word, a, b = arrays.runs[at + 1 + i * kl.POSTING :][2:5].tolist()
                    mode = word >> kl.SLOT_BITS
                    ja, jb = place.get(a, 0), place.get(b, 0)
                    if mode in (kl.FREE, kl.GENERAL):
                        ja = jb = own
                    elif mode == kl.ANY:
                        jb = 0 if a == b else jb
                        word |= kl.FREE << kl.SLOT_BITS if ja == jb == 0 else 0
                    elif not (ja and jb):
                        continue
                    out.append((o, word, ja, jb))
    return out


@pytest.mark.takes_turns
@pytest.mark.parametrize("seed", range(8))
def test_matches_are_those_of_the_definition(seed: int) -> None:
    rng, index = np.random.default_rng(seed), GI2(GRID)
    queries = [random_query(rng, i + 1) for i in range(150)]
    queries = [q for q in queries if not q.circle and not q.ring]
    index.insert(*columns(queries))
    for query in queries[::4]:
        query.deleted = 200 + query.handle
    gone = queries[::4]
    index.delete(np.array([q.handle for q in gone]), np.array([q.deleted for q in gone]))
    values = np.zeros(41, np.int64), np.zeros(0, np.uint64)
    batch = MatchedObjects(*objects(rng, 40), ALL_TERMS, *values)
    for lsn in (0, 75, 150, 260, 400):
        given = candidates(index, batch)
        scratch = index._scratch._replace(cands=np.array(given, np.uint32).reshape(-1, 4))
        found = MatchBuffers(
            np.zeros(len(given) + 1, np.uint32),
            *(np.zeros(len(given) + 1, np.int64) for _ in range(3)),
        )
        end = verify_candidates(len(given), lsn, batch, index._arrays, scratch, 1, found)
        assert not found.block.any()
        assert (found.session[1:end] == 3 * found.handle[1:end]).all()
        texts = [
            set(batch.term[batch.term_off[o] : batch.term_off[o + 1]].tolist())
            for o in range(len(batch.lon))
        ]
        assert sorted(zip(found.row[1:end], found.handle[1:end], strict=True)) == sorted(
            (o, q.handle)
            for o, text in enumerate(texts)
            for q in queries
            if q.emits(lsn, float(batch.lon[o]), float(batch.lat[o]), text)
        )


def block_of(query: Query) -> list[int]:
    """The words of a pool block without geometry."""
    n, size = len(query.terms), len(query.prog)
    head = query.form | 1 << 16 | n << 24 | size << 32
    program = [op % 2**64 for op in query.prog]
    return [head, query.post, 0, 0, 0, 0, 0, *query.terms, *program]


@pytest.mark.parametrize("seed", range(4))
def test_expressions_hold_as_they_are_defined(seed: int) -> None:
    """The key has to be the smallest posting term that the object holds."""
    rng = np.random.default_rng(seed)
    stack, outcomes = np.zeros(64, np.bool_), set()
    for handle in range(300):
        query = random_query(rng, handle + 1)
        pool = np.array([7] * 3 + block_of(query), np.uint64)
        chosen = rng.random(len(VOCABULARY)) < rng.choice([0.2, 0.7, 1.0])
        text = [t for t, there in zip(VOCABULARY, chosen, strict=True) if there]
        term = np.array([1, *text, 5], np.uint64)
        posted = [t for i, t in enumerate(query.terms) if query.post >> i & 1 and t in text]
        for key in query.terms:
            want = query.satisfied(set(text)) and posted[:1] == [key]
            end = len(text) + 1
            holder = term, 1, end, term, 0, 0  # without values
            assert satisfies_expression(pool, 3, np.uint64(key), *holder, stack) == want
            outcomes.add((query.form, want))
    assert outcomes == {(form, want) for form in ExpressionForm for want in (False, True)}
