"""Approval requests: stored, answered by a person, and displayed."""
