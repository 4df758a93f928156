"""Kernels that cap the multicast of objects."""

# mypy: allow-untyped-defs, allow-untyped-decorators, no-check-untyped-defs
from __future__ import annotations

import numpy as np
from numba import njit

_ONE = np.uint64(1)
_SIX = np.uint64(6)
_LOW = np.uint64(63)
_TURNS = 1 << 20
WHOLE, SHED, SAMPLED = 0, 1, 2
"""What an object is: never shed, shed where its workers are too many, or sent whole though it might
be shed, to see what others lose."""


@njit(cache=True, nogil=True)
def add_scores(chosen, live, begin, end, terms, queries, ranked):
    """Adds up the terms and live queries of each worker of an object, and writes the workers into
    ranked. Returns their number. terms, queries int64[workers], zero before."""
    n = np.int64(0)
    for t in range(begin, end):
        for k in range(chosen.shape[1]):
            left = chosen[t, k]
            at = np.int64(64 * k)
            while left:
                if left & _ONE:
                    if terms[at] == 0:
                        ranked[n] = at
                        n += 1
                    terms[at] += 1
                    queries[at] += live[t]
                left >>= _ONE
                at += 1
    return n


@njit(cache=True, nogil=True)
def sort_workers(by_queries, turn, terms, queries, ranked, n):
    """Sorts ranked[:n] by descending rank: live queries, then terms, or the other way round; of
    equals by number, counted from `turn` on, so that no worker is always the last."""
    workers = len(terms)
    for i in range(1, n):
        worker = ranked[i]
        first, second = terms[worker], queries[worker]
        if by_queries:
            first, second = second, first
        place = (worker - turn) % workers
        at = i
        while at > 0:
            other = ranked[at - 1]
            a, b = terms[other], queries[other]
            if by_queries:
                a, b = b, a
            if a > first or (a == first and b > second):
                break
            if a == first and b == second and (other - turn) % workers < place:
                break
            ranked[at] = other
            at -= 1
        ranked[at] = worker


@njit(cache=True, nogil=True)
def clear_scores(terms, queries, ranked, n):
    """Zeroes the scores of ranked[:n]."""
    for i in range(n):
        terms[ranked[i]] = 0
        queries[ranked[i]] = 0


@njit(cache=True, nogil=True)
def cap_objects(
    off, chosen, live, targets, by_queries, sheddable, draw, terms, queries, ranked, kept, bits
):  # fmt: skip
    """Caps each object at `targets` workers. Writes whether each term is kept into kept, uint8[t],
    and the workers of the kept terms into bits, uint64[n, words], zero before."""
    words = chosen.shape[1]
    best = np.zeros(words, np.uint64)
    whole = np.int64(min(targets, 1e9))
    part = targets - whole
    for i in range(len(off) - 1):
        begin, end = off[i], off[i + 1]
        n = add_scores(chosen, live, begin, end, terms, queries, ranked)
        most = whole + (1 if draw[i] < part else 0)
        if sheddable[i] and n > most:
            turn = np.int64(draw[i] * _TURNS) % len(terms)
            sort_workers(by_queries, turn, terms, queries, ranked, n)
            for k in range(words):
                best[k] = 0
            for k in range(most):
                worker = np.uint64(ranked[k])
                best[worker >> _SIX] |= _ONE << (worker & _LOW)
            any_kept = keep_terms(chosen, begin, end, best, kept)
            if not any_kept:
                kept[find_most_live(chosen, live, begin, end)] = 1
        else:
            for t in range(begin, end):
                kept[t] = 1
        for t in range(begin, end):
            if kept[t]:
                for k in range(words):
                    bits[i, k] |= chosen[t, k]
        clear_scores(terms, queries, ranked, n)


@njit(cache=True, nogil=True)
def keep_terms(chosen, begin, end, best, kept):
    """Writes 1 for each term all of whose workers are among the best, 0 for others. Returns whether
    a term that has workers is kept."""
    found = False
    for t in range(begin, end):
        outside = False
        some = False
        for k in range(chosen.shape[1]):
            outside = outside or (chosen[t, k] & ~best[k]) != 0
            some = some or chosen[t, k] != 0
        kept[t] = 0 if outside else 1
        found = found or (some and not outside)
    return found


@njit(cache=True, nogil=True)
def find_most_live(chosen, live, begin, end):
    """Returns the term with the most live queries among those that chose a worker: there is one."""
    best = np.int64(-1)
    for t in range(begin, end):
        some = False
        for k in range(chosen.shape[1]):
            some = some or chosen[t, k] != 0
        if some and (best < 0 or live[t] > live[best]):
            best = t
    return best


@njit(cache=True, nogil=True)
def rank_objects(off, chosen, live, by_queries, draw, terms, queries, ranked, start, out):
    """Writes the workers of each object by descending rank into out[start[i]:start[i + 1]]."""
    for i in range(len(off) - 1):
        n = add_scores(chosen, live, off[i], off[i + 1], terms, queries, ranked)
        turn = np.int64(draw[i] * _TURNS) % len(terms)
        sort_workers(by_queries, turn, terms, queries, ranked, n)
        for k in range(n):
            out[start[i] + k] = ranked[k]
        start[i + 1] = start[i] + n
        clear_scores(terms, queries, ranked, n)


@njit(cache=True, nogil=True)
def join_chosen(off, chosen, bits):
    """Writes the workers of all terms of each object into bits, uint64[n, words], zero before."""
    for i in range(len(off) - 1):
        for t in range(off[i], off[i + 1]):
            for k in range(chosen.shape[1]):
                bits[i, k] |= chosen[t, k]


@njit(cache=True, nogil=True)
def shed_copies(by_term, live, term_off, targets, by_queries, state, draw, fan, copies, cut, lost):
    """Sends objects to their best `targets` workers alone, each worker for itself.

    by_term uint64[t, words]: the workers that each term chose, from term_off[0] on; the bits of
    those that are not sent the object are cleared. live int64[t]: the queries under each term.
    state uint8[n]: WHOLE, SHED or SAMPLED. draw float64[n] in [0, 1): as in `cap_objects`.

    Adds to fan[w], int64[64], the objects that may be shed and were to go to w workers (63: or
    more), and to fan[0] the copies of the others; to copies int64[workers] what each worker was
    not sent. Writes into cut, uint64[n, words], zero before, the workers that each object is not
    sent, or, if it is sampled, would not have been; into lost, uint8[t], zero before, 1 for each
    term of which some worker was not sent the object. Returns the objects that were shed.
    """
    workers = len(copies)
    terms, queries = np.zeros(workers, np.int64), np.zeros(workers, np.int64)
    ranked = np.empty(workers, np.int64)
    whole = np.int64(min(targets, 1e9))
    part = targets - whole
    first = term_off[0]
    found = np.int64(0)
    for i in range(len(state)):
        begin, end = term_off[i] - first, term_off[i + 1] - first
        n = add_scores(by_term, live, begin, end, terms, queries, ranked)
        if state[i] == WHOLE:
            fan[0] += n
            clear_scores(terms, queries, ranked, n)
            continue
        fan[min(n, np.int64(63))] += n > 0
        most = whole + (1 if draw[i] < part else 0)
        if n > most:
            turn = np.int64(draw[i] * _TURNS) % workers
            sort_workers(by_queries, turn, terms, queries, ranked, n)
            for k in range(most, n):
                worker = np.uint64(ranked[k])
                cut[i, worker >> _SIX] |= _ONE << (worker & _LOW)
            if state[i] == SHED:
                found += 1
                for k in range(most, n):
                    copies[ranked[k]] += 1
                for t in range(begin, end):
                    for k in range(by_term.shape[1]):
                        if by_term[t, k] & cut[i, k]:
                            lost[t] = 1
                            by_term[t, k] &= ~cut[i, k]
        clear_scores(terms, queries, ranked, n)
    return found
