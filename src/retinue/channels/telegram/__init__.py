"""Telegram: a thin client of the Bot API."""
