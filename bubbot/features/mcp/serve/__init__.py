"""Programs of others read granted tapes through MCP."""
