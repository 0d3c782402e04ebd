"""How well and how fast the search finds, on text that is on the machine."""
