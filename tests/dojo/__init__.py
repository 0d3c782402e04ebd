"""AgentDojo's tasks (https://github.com/ethz-spylab/agentdojo) behind a server of MCP."""
