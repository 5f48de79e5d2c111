"""Bringing an index up to date: files, chunks, embeddings."""
