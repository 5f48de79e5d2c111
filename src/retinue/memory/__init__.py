"""Memory: indexes the notes of an agent and searches them."""
