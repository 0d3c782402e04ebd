"""Channel adapters: each implements the port of `bubbot.ports.channel` and is loaded by its entry point."""
