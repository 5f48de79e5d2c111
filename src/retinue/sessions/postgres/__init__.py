"""Transcripts and sessions as rows of PostgreSQL."""
