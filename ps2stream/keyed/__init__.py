"""Keyed streams: which worker gets a tuple, by its key alone (algorithms.md 4 and 5).

The schemes of Partial Key Grouping and FISH, for simulations and for dispatchers: pure, seeded,
columnar, and with bounded memory where the paper's scheme has it. A key is any 64-bit number, a
number of a word or the hash of a unit.
"""
