"""The channels of a terminal: standard input, and a full-screen chat."""
