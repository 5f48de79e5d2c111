"""The OpenAI-compatible API: chat completions, responses, models and embeddings."""
