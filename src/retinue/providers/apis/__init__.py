"""Adapters for the HTTP APIs of model providers."""
