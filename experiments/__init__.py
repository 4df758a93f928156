"""Experiments: plans judged on data that they were not made from (algorithms.md 1.10, 2.7)."""
