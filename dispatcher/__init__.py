"""Dispatchers: the dispatcher machine, and in it the router machine with gridt (H1, H2; PS2Stream,
section IV-C)."""
