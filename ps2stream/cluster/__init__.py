"""Composition: the machines wired together, in one process or as Ray actors."""
