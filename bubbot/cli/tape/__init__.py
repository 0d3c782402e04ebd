"""`bubbot tape`."""
