"""Workloads and measurements (speed.md; algorithms.md 1.10)."""
