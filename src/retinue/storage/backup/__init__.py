"""Backups of a home: incremental snapshots in a content-addressed repository."""
