"""Checking, fixing and archiving transcripts."""
