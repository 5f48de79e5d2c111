"""Sandboxes for commands: what a sandbox shows, and the backends that enforce it."""
