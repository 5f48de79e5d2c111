"""Structs for untrusted data: declared with their limits, decoded with every problem, described as JSON Schema."""
