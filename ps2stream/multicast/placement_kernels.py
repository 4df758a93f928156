"""The kernels that place subscriptions on workers."""

# mypy: allow-untyped-defs, allow-untyped-decorators, no-check-untyped-defs
from __future__ import annotations

import numpy as np
from numba import njit

LASP, LEAST_FREQUENT, LEAST_COST, DRAWN = 0, 1, 2, 3
_CLOSE = 1e-12


@njit(cache=True, nogil=True)
def list_eligible(first, parts, owner, frequency, word, begin, end, found):
    """Writes the workers that may hold the subscription word[begin:end] into found, int64[workers],
    ascending: those of its regular words, or, if all are hot, those of the versions of the least
    frequent one. Returns (their number, True if it must be on all of them)."""
    n = np.int64(0)
    least = np.int64(-1)
    for j in range(begin, end):
        w = word[j]
        if parts[w] == 1:
            n = add_distinct(found, n, owner[w])
        elif comes_before(frequency, w, least):
            least = w
    if n > 0:
        return n, False
    for version in range(first[least], first[least] + parts[least]):
        n = add_distinct(found, n, owner[version])
    return n, True


@njit(cache=True, nogil=True)
def add_distinct(found, n, worker):
    """Adds a worker to found[:n], which ascends, unless it is there. Returns the new length."""
    at = n
    while at > 0 and found[at - 1] > worker:
        at -= 1
    if at > 0 and found[at - 1] == worker:
        return n
    for k in range(n, at, -1):
        found[k] = found[k - 1]
    found[at] = worker
    return n + 1


@njit(cache=True, nogil=True)
def choose_by_load(found, n, base, per_word, word, begin, end, count, size, total, squares):
    """Returns the worker where u = -l * stddev(L) / mean(L) is greatest (LASP), of equals the one
    with the least l, then the first in number. total, squares: of the sizes of all workers."""
    workers = len(size)
    best = np.int64(-1)
    least = np.inf
    least_added = np.inf
    for k in range(n):
        i = found[k]
        new = np.int64(0)
        for j in range(begin, end):
            if count[i, word[j]] == 0:
                new += 1
        added = base + per_word * new
        mean = (total + new) / workers
        # The deviation of f(size) is that of the sizes times the slope: whole numbers, exact.
        variance = (squares + new * (2 * size[i] + new)) / workers - mean * mean
        deviation = per_word * np.sqrt(max(variance, 0.0))
        average = base + per_word * mean
        price = added * deviation / average if average > 0 else 0.0
        tie = abs(price - least) <= _CLOSE * abs(least)
        before = added < least_added or (added == least_added and i < best)
        if best < 0 or (price < least and not tie) or (tie and before):
            best, least, least_added = i, price, added
    return best


@njit(cache=True, nogil=True)
def choose_by_frequency(parts, owner, frequency, word, begin, end):
    """Returns the worker of the least frequent regular word, of equals the first in number."""
    least = np.int64(-1)
    for j in range(begin, end):
        w = word[j]
        if parts[w] > 1:
            continue
        if comes_before(frequency, w, least):
            least = w
    return owner[least]


@njit(cache=True, nogil=True)
def choose_by_cost(parts, owner, frequency, word, begin, end, work):
    """Returns the worker of the regular word whose cost is least, and adds its frequency to work:
    the frequency, times one plus what its worker would have over the mean of all workers."""
    workers = len(work)
    best = np.int64(-1)
    least = np.inf
    mean = work.sum() / workers
    for j in range(begin, end):
        w = word[j]
        if parts[w] > 1:
            continue
        each = frequency[w] + 1.0
        i = owner[w]
        price = each * (1.0 + (work[i] + each) / (mean + each / workers))
        if price < least or (price == least and w < best):
            best, least = w, price
    work[owner[best]] += frequency[best] + 1.0
    return owner[best]


@njit(cache=True, nogil=True)
def place_subscriptions(
    rule, base, per_word, first, parts, owner, frequency, off, word, draw,
    count, size, totals, work, found, start, out,
):  # fmt: skip
    """Places subscriptions in turn and counts their words in count, int32[workers, words], size,
    int64[workers], and totals, int64[2]: the sum of sizes, and of their squares; rule LEAST_COST
    also adds up work, float64[workers]. draw uint64[s]: of rule DRAWN. start int64[s + 1]: where
    each one's workers begin in out, int64[room]. Returns the subscriptions placed: fewer than all
    if there is no more room."""
    for s in range(len(off) - 1):
        begin, end = off[s], off[s + 1]
        n, everywhere = list_eligible(
            first, parts, owner, frequency, word, begin, end, found
        )  # fmt: skip
        at = start[s]
        if at + n > len(out):
            return s
        if not everywhere:
            if rule == LASP:
                found[0] = choose_by_load(
                    found, n, base, per_word, word, begin, end, count, size, totals[0], totals[1]
                )
            elif rule == LEAST_FREQUENT:
                found[0] = choose_by_frequency(parts, owner, frequency, word, begin, end)
            elif rule == LEAST_COST:
                found[0] = choose_by_cost(parts, owner, frequency, word, begin, end, work)
            else:
                found[0] = found[np.int64(draw[s] % np.uint64(n))]
            n = np.int64(1)
        for k in range(n):
            i = found[k]
            out[at + k] = i
            add_words(i, word, begin, end, count, size, totals)
        start[s + 1] = at + n
    return len(off) - 1


@njit(cache=True, nogil=True)
def add_words(i, word, begin, end, count, size, totals):
    """Counts the words of a subscription at worker i."""
    for j in range(begin, end):
        count[i, word[j]] += 1
        if count[i, word[j]] == 1:
            totals[0] += 1
            totals[1] += 2 * size[i] + 1
            size[i] += 1


@njit(cache=True, nogil=True)
def remove_words(off, word, start, held, count, size, totals):
    """Takes the words of subscriptions from the workers that hold them: held[start[s]:start[s +
    1]]."""
    for s in range(len(off) - 1):
        for k in range(start[s], start[s + 1]):
            i = held[k]
            for j in range(off[s], off[s + 1]):
                count[i, word[j]] -= 1
                if count[i, word[j]] == 0:
                    totals[0] -= 1
                    totals[1] -= 2 * size[i] - 1
                    size[i] -= 1


@njit(cache=True, nogil=True)
def choose_posting_words(parts, owner, frequency, off, word, start, held, out):
    """Writes the word by which each placement is reached into out, int64[placements]: the least
    frequent of the regular words that the worker owns, or of all words if all are hot; of equals
    the first in number."""
    for s in range(len(off) - 1):
        for k in range(start[s], start[s + 1]):
            least = np.int64(-1)
            least_hot = np.int64(-1)
            for j in range(off[s], off[s + 1]):
                w = word[j]
                if parts[w] > 1:
                    if comes_before(frequency, w, least_hot):
                        least_hot = w
                elif owner[w] == held[k] and comes_before(frequency, w, least):
                    least = w
            out[k] = least if least >= 0 else least_hot


@njit(cache=True, nogil=True)
def comes_before(frequency, w, least):
    """Returns whether word w is less frequent than another, -1 for none, or as frequent and first
    in number."""
    if least < 0 or frequency[w] < frequency[least]:
        return True
    return frequency[w] == frequency[least] and w < least
