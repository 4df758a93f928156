"""Matching of tables and files in this process, by the service's own code but without a service."""
