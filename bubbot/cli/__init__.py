"""The commands of `bubbot`, one module each."""
