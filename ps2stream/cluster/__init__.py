"""The composition of a service: its machines in one process or as Ray actors."""
