"""Trace: the page that shows what happened, for people with a browser."""
