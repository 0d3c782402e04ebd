"""Channel adapters: each implements the port of `bubbot.channel` and is loaded by entry point."""
