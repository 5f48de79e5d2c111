"""Authentication: tokens, pairing, rate limits, and where a request comes from."""
