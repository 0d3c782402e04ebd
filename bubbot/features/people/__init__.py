"""People: what the home holds about each of them, what they allow, and that they are forgotten."""
