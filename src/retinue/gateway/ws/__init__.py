"""The WebSocket of the gateway."""
