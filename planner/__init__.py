"""Partitioning and adjustment: where each part of space and of the terms is served."""
