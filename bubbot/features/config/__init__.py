"""Settings, shown and changed from a chat."""
