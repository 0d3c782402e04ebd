"""The search index: a separate SQLite file."""
