"""The tape: entries, anchors, queries, and the ports through which they are stored and read."""
