"""The server of the Model Context Protocol: conversations, memory, approvals and sub-agents for other programs."""
