"""Algorithm 1 of PS2Stream as it is printed (`hybrid-paper`)."""
