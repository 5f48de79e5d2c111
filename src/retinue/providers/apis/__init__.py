"""Adapters that speak the HTTP APIs of model providers."""
