"""The server inside the bot, and its clients: one API over HTTP, on the home's socket and where it is configured."""
