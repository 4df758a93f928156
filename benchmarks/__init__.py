"""Workloads and measurements of the service (speed.md; algorithms.md 1.10)."""
