"""The home folder, file access limited to a root folder, and databases."""
