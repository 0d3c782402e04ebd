"""Markdown: parsing, splitting and rendering."""
