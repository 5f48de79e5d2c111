"""Durable bytes: the home folder, contained file access, databases."""
