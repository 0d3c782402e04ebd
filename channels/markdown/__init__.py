"""Parsing, splitting and rendering of Markdown."""
