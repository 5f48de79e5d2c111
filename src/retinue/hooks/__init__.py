"""Lifecycle hooks: observe, change or veto what happens in a turn."""
