"""Tools about the session itself and about other sessions and agents."""
