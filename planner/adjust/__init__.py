"""Live adjustment: which parts of cells go to which worker (algorithms.md 1.8, 1.9)."""
