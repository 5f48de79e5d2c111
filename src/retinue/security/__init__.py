"""The border between what is trusted and what is not."""
