"""The process that speaks MCP with the servers of others: alone it imports the SDK."""
