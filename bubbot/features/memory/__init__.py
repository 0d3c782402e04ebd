"""Memory: a long-term text and daily notes on each tape."""
