"""Kernels of the schemes that look at the frequency of a key: FISH, and D- and W-Choices
(algorithms.md 5.4)."""

# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

from ps2stream.keyed.choice_kernels import least_of
from ps2stream.keyed.compiling import kernel
from ps2stream.keyed.counter_kernels import count_key, find_degree
from ps2stream.keyed.key_kernels import hash_to_choice, hash_to_worker
from ps2stream.keyed.ring_kernels import find_node
from ps2stream.keyed.waiting_kernels import pick_least_waiting


@kernel
def route_by_ring(c, limits, places, order, depth, seed, w, keys, arrivals, chosen):
    """Counts each key, and sends it to the candidate on the ring that has the least waiting time:
    FISH. order: the `depth` candidates of each node, one after the other. Writes the workers into
    chosen, uint16[n]."""
    for i in range(keys.shape[0]):
        slot = count_key(c, limits, keys[i])
        d = min(find_degree(c, limits, slot), depth)
        node = find_node(places, keys[i], seed)
        begin = node * depth
        chosen[i] = pick_least_waiting(w, order, begin, begin + d, arrivals[i])


@kernel
def route_by_choices(c, limits, seeds, loads, keys, chosen):
    """Counts each key, and sends it to the least loaded of its hashed choices, or of all workers
    if it has as many choices: D- and W-Choices. seeds uint64[workers]; loads int64[workers]."""
    workers = loads.shape[0]
    for i in range(keys.shape[0]):
        slot = count_key(c, limits, keys[i])
        d = find_degree(c, limits, slot)
        if d >= workers:
            best = least_of(loads)
        else:
            first = hash_to_worker(keys[i], seeds[0], workers)
            best = first
            for j in range(1, d):
                worker = hash_to_choice(keys[i], seeds, j, workers, first)
                if loads[worker] < loads[best]:
                    best = worker
        loads[best] += 1
        chosen[i] = best
