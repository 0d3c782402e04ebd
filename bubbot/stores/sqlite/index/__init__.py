"""The search index, a SQLite file of its own."""
