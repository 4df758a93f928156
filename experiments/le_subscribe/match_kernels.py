"""Matching: phase 1 sets the bits of the predicates that an event satisfies and finds the clusters
whose access predicate holds, phase 2 scans them."""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

import numpy as np

from ps2stream.experiments.le_subscribe.compiling import kernel
from ps2stream.experiments.le_subscribe.entry_kernels import find_entry, hash_key
from ps2stream.experiments.le_subscribe.layout import (
    BASE,
    CAP,
    COUNT,
    DONE,
    FIRST_TABLE,
    NEXT,
    REPEATED,
    ROWS,
    SHORT_OF_MATCHES,
    TABLES,
)
from ps2stream.experiments.le_subscribe.predicate_kernels import clear_bits, test_predicates
from ps2stream.experiments.le_subscribe.scan_kernels import scan_cluster
from ps2stream.space.prefetch import prefetch

_NO_BITS = np.uint64(0)
_ONE_BIT = np.uint64(1)
SATISFIED, CHECKS, PROBES, VISITS = range(4)  # of `counts`


@kernel
def match_events(a, events, first, scanned, ahead, satisfied, chosen, heads, out_row, out, counts):
    """Matches the events from `first` on. scanned: False for phase 1 alone; ahead: true to fetch
    ahead. satisfied int32[preds]; chosen int32[ATTRIBUTES], all -1; heads int64[entries that one
    event can satisfy]; out_row and out int64[]: matches; counts int64[4]: sums of satisfied
    predicates, of checked columns, of probed tables and of scanned clusters.

    Returns (what there is no room for, how many matches there are, the first event not matched).
    """
    m = np.int64(0)
    for row in range(first, events.off.shape[0] - 1):
        count, found, having = np.int64(0), np.int64(0), _NO_BITS
        begin, end = events.off[row], events.off[row + 1]
        if has_repeated(events.attribute, begin, end):
            return REPEATED, m, row
        for k in range(begin, end):
            attribute = np.int64(events.attribute[k])
            count, equal = test_predicates(a, attribute, events.value[k], satisfied, count)
            if equal >= 0:
                chosen[attribute] = equal
                having |= _ONE_BIT << np.uint64(attribute)
                if a.pred_entry[equal] >= 0:
                    heads[found] = a.pred_entry[equal]
                    found += 1
        found, probed = _find_entries(a, having, chosen, ahead, heads, found)
        start, short, checks, visits = m, False, 0, 0
        if scanned:
            found = _find_clusters(a, ahead, heads, found)
            for k in range(-1, found):
                number = np.int64(a.entry_head[0]) if k < 0 else heads[k]
                while number >= 0:
                    size = a.cluster[number, COUNT]
                    if m + size > out.shape[0]:
                        short = True
                        break
                    m = scan_cluster(
                        a.pool, a.cluster[number, BASE], a.cluster[number, CAP], size,
                        a.cluster[number, ROWS], a.bits, ahead, out, m,
                    )  # fmt: skip
                    checks += size
                    visits += 1
                    number = a.cluster[number, NEXT]
                if short:
                    break
        for k in range(start, m):
            out_row[k] = row
        clear_bits(a.bits, satisfied, count)
        for k in range(begin, end):
            chosen[events.attribute[k]] = -1
        if short:
            return SHORT_OF_MATCHES, start, row
        counts[SATISFIED] += count
        counts[PROBES] += probed
        counts[CHECKS] += checks
        counts[VISITS] += visits
    return DONE, m, events.off.shape[0] - 1


@kernel
def has_repeated(attribute, begin, end):
    """Returns True if an attribute is there twice."""
    present = _NO_BITS
    for k in range(begin, end):
        bit = _ONE_BIT << np.uint64(attribute[k])
        if present & bit != _NO_BITS:
            return True
        present |= bit
    return False


@kernel
def _find_entries(a, having, chosen, ahead, heads, found):
    """Appends the access predicates of several attributes that hold. Returns (how many there are
    then, the number of tables probed)."""
    tables, probed = a.state[TABLES], 0
    if ahead:
        mask = a.entry_slots.shape[0] - 1
        for table in range(FIRST_TABLE, tables):
            schema = a.table_mask[table]
            if schema != _NO_BITS and schema & having == schema:
                one, two, three = _read_key(a.table_attrs, table, chosen)
                prefetch(a.entry_slots, hash_key(one, two, three) & mask)
    for table in range(FIRST_TABLE, tables):
        schema = a.table_mask[table]
        if schema != _NO_BITS and schema & having == schema:
            one, two, three = _read_key(a.table_attrs, table, chosen)
            probed += 1
            entry = find_entry(a.entry_slots, one, two, three)
            if entry >= 0:
                heads[found] = entry
                found += 1
                if ahead:
                    prefetch(a.entry_head, entry)
    return found, probed


@kernel
def _read_key(table_attrs, table, chosen):
    """Returns the ids of a table's access predicate, the last being -1 for two attributes."""
    third = table_attrs[table, 2]
    return (
        chosen[table_attrs[table, 0]],
        chosen[table_attrs[table, 1]],
        chosen[third] if third >= 0 else np.int32(-1),
    )


@kernel
def _find_clusters(a, ahead, heads, found):
    """Replaces access predicates by their first cluster, and fetches the beginnings ahead."""
    for k in range(found):
        heads[k] = a.entry_head[heads[k]]
        if ahead:
            prefetch(a.cluster, heads[k])
    if ahead:
        for k in range(found):
            number = heads[k]
            rows = 1 if a.cluster[number, ROWS] > 0 else 0
            prefetch(a.pool, a.cluster[number, BASE] + rows * a.cluster[number, CAP])
    return found
