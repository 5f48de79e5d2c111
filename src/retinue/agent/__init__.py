"""The agent: one turn from a message to an answer."""
