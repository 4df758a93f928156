"""The demo: a live stream of posts against queries, verified by brute force."""
