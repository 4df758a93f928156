"""The clients, synchronous and asynchronous."""
