"""The index of notes in SQLite: its protocol, its tables, its vectors."""
