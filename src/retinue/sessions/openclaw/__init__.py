"""Importing the transcripts of OpenClaw."""
