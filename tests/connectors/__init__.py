"""Connectors against the systems themselves."""
