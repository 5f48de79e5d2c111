"""Skill registries that are compatible with ClawHub: the client, and the folder of a registry of your own."""
