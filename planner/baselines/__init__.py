"""The algorithms that Algorithm 1 is compared with (algorithms.md 1.5, 2.2, 2.3)."""
