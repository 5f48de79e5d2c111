"""Slash commands: what a person can tell Retinue itself, one module per noun."""
