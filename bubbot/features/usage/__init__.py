"""Usage: what model calls took and cost."""
