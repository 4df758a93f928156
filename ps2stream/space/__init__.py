"""Regions, the grid and the kdt-tree: everything about positions."""
