"""Checkpoints of a workspace: what each turn changed, so that it can be undone."""
