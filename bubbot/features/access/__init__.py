"""Access: who may speak, by configuration, grants and pairing codes."""
