"""Fake servers of chat services: they keep the rules of the service, and can be as unreliable as a bad day."""
