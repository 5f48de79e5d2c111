"""Health checks of a home: problems, why they matter and what to do. Read-only."""
