"""`bubbot chat`, and chats of other commands with the bot of a home."""
