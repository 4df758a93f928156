"""A history checker: what clients called and received, and whether the promises were kept."""
