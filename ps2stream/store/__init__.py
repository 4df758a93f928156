"""Ledgers and logs: in a directory (SQLite, segment files), in PostgreSQL, in memory."""
