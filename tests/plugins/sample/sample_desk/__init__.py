"""A plugin that uses every extension point, for tests."""
