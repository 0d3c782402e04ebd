"""Topics: threads of a chat that stay apart in context and together on the tape."""
