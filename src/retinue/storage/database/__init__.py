"""SQLite databases: open, check and migrate them, and move damaged files aside."""

from retinue.storage.database.database import DATABASE_NAME, SqliteDatabase, query_read_only
from retinue.storage.database.database_file import DatabaseDamaged, NewerDatabase, mark_report_shown, read_reports
from retinue.storage.database.protocol import Database, Result, Row, StateChange, Value

__all__ = [
    "DATABASE_NAME",
    "Database",
    "DatabaseDamaged",
    "NewerDatabase",
    "Result",
    "Row",
    "SqliteDatabase",
    "StateChange",
    "Value",
    "mark_report_shown",
    "query_read_only",
    "read_reports",
]
