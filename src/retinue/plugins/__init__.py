"""Plugins: discovery and registration of tools, providers, skills and hooks, including the built-in ones."""
