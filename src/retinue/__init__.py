"""Retinue, a personal-agent runtime: an assistant that lives in a folder of Markdown files."""

__version__ = "0.1.0"
