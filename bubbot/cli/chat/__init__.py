"""`bubbot chat`, and the chats of other commands with the bot of a home."""
