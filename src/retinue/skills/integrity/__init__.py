"""Integrity of skills: which content the owner accepted, whether it is still that content, and its versions."""
