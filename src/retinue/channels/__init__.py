"""Channels: accounts of chat services that messages are sent to."""
