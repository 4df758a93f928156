"""Mergers: exact dedupe of matches, and their fan-out to sessions."""
