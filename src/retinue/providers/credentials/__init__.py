"""Credentials for providers: the profile file, the order of use, and cooldowns after failures."""
