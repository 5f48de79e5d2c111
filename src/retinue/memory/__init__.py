"""The memory index: what an agent wrote down, found again."""
