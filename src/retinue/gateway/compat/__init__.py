"""The HTTP interfaces that programs written for OpenAI know, with agents in the place of models."""
