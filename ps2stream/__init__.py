"""PS2Stream: distributed publish/subscribe over streams of geo-tagged text."""

__version__ = "0.1.0"
