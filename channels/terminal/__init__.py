"""Terminal channels: standard input, and a chat with a line editor."""
