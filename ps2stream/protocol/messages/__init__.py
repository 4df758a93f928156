"""The messages between machines, by subject. Importing the package registers all of them."""

from ps2stream.protocol.messages import loads, objects, plan, sessions, updates, watch

__all__ = ["loads", "objects", "plan", "sessions", "updates", "watch"]
