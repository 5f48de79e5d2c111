"""Waking up: by the clock, by a heartbeat, by what others send."""
