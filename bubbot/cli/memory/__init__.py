"""`bubbot memory`."""
