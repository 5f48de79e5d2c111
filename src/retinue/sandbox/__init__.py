"""Confinement of commands: what a sandbox shows, and the programs and kernel features that enforce it."""
