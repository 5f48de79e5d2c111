"""Slash commands, one module per noun."""
