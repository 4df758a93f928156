"""Bridges between a service and the systems around it; each is a client, nothing more."""
