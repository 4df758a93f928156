"""The live map: a page, and the process that serves it as a client of a running service."""
