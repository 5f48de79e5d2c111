"""The configuration: a JSON5 file that is validated, explained, and edited without losing comments."""
