"""Real faults: the service on Ray, real clients, kill -9, against the oracle."""
