"""The server: one port for the chat page, HTTP and WebSocket; every request is authenticated."""
