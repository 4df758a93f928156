"""Other engines under the same work, each with the same results: Lucene Monitor, FAST, Tile38.

They are not installed with PS2Stream. docs/comparison.md says where to get them and what was
measured.
"""
