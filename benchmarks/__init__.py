"""Workloads and measurements of the service (algorithms.md 1.10)."""
