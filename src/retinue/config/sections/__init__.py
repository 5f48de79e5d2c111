"""Sections of the configuration that no other package declares."""
