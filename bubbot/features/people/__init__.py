"""People: what the home holds about each of them, and what they allow."""
