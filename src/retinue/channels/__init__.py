"""Where people talk."""
