"""Reading shell command lines and deciding whether they may run."""
