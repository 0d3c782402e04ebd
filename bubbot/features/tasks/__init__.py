"""Tasks: a graph of turns under a contract."""
