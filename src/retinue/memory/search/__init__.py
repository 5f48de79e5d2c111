"""Searching an index: queries, scores, snippets."""
