"""The server: one port for pages, HTTP and WebSocket, and nobody gets past its door unchecked."""
