"""`bubbot run`."""
