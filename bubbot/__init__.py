"""bubbot: a self-hosted chat bot daemon whose whole state is facts on append-only tapes."""

__version__ = "0.1.0"
