"""The sequencer: the one order of all query updates."""
