"""The worker's index with the grid inside the keyword and hierarchical; see `layout`."""
