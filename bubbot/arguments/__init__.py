"""The arguments of commands and tools: their fields, what is wrong with a value, and their JSON schema."""
