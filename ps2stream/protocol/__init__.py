"""Columnar frames, the messages between actors, and the ports of their machines."""
