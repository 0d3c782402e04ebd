"""MCP: tools of other programs for our turns, and our tapes for other programs."""
