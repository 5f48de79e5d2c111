"""Frames, methods and events: what the gateway and its clients say to each other."""
