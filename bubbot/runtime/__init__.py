"""The runtime: sessions, turns, the agent loop."""
