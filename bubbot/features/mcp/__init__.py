"""MCP, the Model Context Protocol: tools of servers that others run, and tapes that other programs read."""
