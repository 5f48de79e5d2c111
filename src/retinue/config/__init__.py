"""The configuration: one file of JSON5, checked, explained and edited without losing a comment."""
