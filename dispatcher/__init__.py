"""Dispatchers: gridt (H1, H2) and the router machine (PS2Stream, section IV-C)."""
