"""Structs for untrusted data: declaration with limits, decoding that reports every problem, and JSON Schema."""
