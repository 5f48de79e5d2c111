"""Transcript files: JSON lines on disk and how they are encoded."""
