"""Text embeddings, by a provider or by a local model."""
