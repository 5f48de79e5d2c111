"""The system prompt: pure functions from values to text, with a record of every section."""
