"""Local load adjustment: which units migrate to which worker (algorithms.md 1.8, 1.9)."""
