"""SQLite databases: open, check and migrate them, and move damaged files aside."""

from retinue.storage.database.database import DATABASE_NAME, Database, Value, query_read_only
from retinue.storage.database.database_file import DatabaseDamaged, NewerDatabase, mark_report_shown, read_reports

__all__ = [
    "DATABASE_NAME",
    "Database",
    "DatabaseDamaged",
    "NewerDatabase",
    "Value",
    "mark_report_shown",
    "query_read_only",
    "read_reports",
]
