"""The QMD program as an agent's memory, with the built-in index standing in where it fails."""
