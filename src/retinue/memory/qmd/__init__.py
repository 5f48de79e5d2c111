"""The QMD program as memory backend, with the built-in index as fallback."""
