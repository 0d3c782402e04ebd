"""Replays: recorded requests built again, and slices run again with another model."""
